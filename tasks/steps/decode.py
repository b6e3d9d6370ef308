"""Step *decode* (postprocess): turn synthetic codes into rows with the source's names and the spec's types and values.

Paper: section 5.3 (a combined value is replaced by one of its values, by the noisy one-way); bins as in DPSyn, section
5.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.tables import ValueRange, choose_batch_rows
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.estimation.tails import with_tails
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.together import gather, keep_difference, with_common_shapes
from privsyn.tasks.rules.feasibility import find_valid_row
from privsyn.tasks.rules.repair import repair_rows
from privsyn.tasks.synthesis.fine_codes import FineCodes
from privsyn.tasks.synthesis.related_places import RelatedPlaces, fit_related_places


def decode(
    codes: CodeTable,
    recode: Recode,
    plan: EncodingPlan,
    column_order: Sequence[str],
    seed: int,
    exact: Sequence[str] = (),
    *,
    related: bool = False,
    asked_pairs: Sequence[Clique] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the synthetic table as batches of :func:`build_decoded_schema`; rows in random order.

    Post-processing of noisy tables only; the same ``seed`` gives the same rows.  No row breaks a rule of the plan.
    ``exact``: attributes with one value per code, which repairs of a row leave alone.  ``related``: whether relations
    continue inside codes (tasks/synthesis/related_places.py); ``asked_pairs``: for which pairs, None for all.
    """
    rng = seed_generator(seed)
    recode, plan = with_tails(with_common_shapes(recode, plan.together, plan.interval_bins), plan)
    schema, ranges = build_decoded_schema(plan, column_order), plan.ranges()
    draws = {a: FineCodes(recode[a]) for a in codes.domain.attributes}
    # helper columns tell where values lie inside a fine code, unless their shares are pure chance
    chances = {a: bins.chances for a, bins in plan.binning.items() if bins.chances is not None}
    even = {a for a, shares in chances.items() if (recode[a].weight == shares).all()}
    helped = {codec.attribute for codec in plan.codecs if not even.issuperset(codec.helpers)}
    gathered = {a for group in plan.together for a in group}  # moved to each other's places, so never rounded
    rounded = {codec.attribute for codec in plan.codecs if codec.rounds_at_places} & helped - gathered
    model = fit_related_places(codes, recode, plan.binning, asked_pairs) if related else None

    compared = [(codec, _plan_columns(plan, codec.sources)) for codec in plan.differences]

    def make(coarse: dict[str, NDArray[Any]]) -> dict[str, pa.Array]:
        common = _list_common_places(coarse, plan.together, rng)
        if model is not None:
            common = model.draw(coarse, rng) | common
        fine = {a: refine(coarse[a], rng) for a, refine in draws.items() if a not in common}
        followed = {a: draws[a].find_at(coarse[a], places) for a, places in common.items()}
        codes = {a: code for a, (code, _) in followed.items()}
        places = {a: place for a, (_, place) in followed.items() if a in gathered or a not in helped - rounded}
        gather(codes, places, plan.together, plan.interval_bins, rng)
        fine |= codes
        columns = plan.decode(fine, rng, places, rounded)
        for codec, columns_plan in compared:
            redraw = partial(_redraw_columns, columns_plan, coarse, fine, draws, rng)
            keep_difference(codec, columns, fine, recode, redraw, rng)
        return columns | (plan.compute_columns(columns) if compared else {})

    for coarse in _iterate_batches(codes, rng, choose_batch_rows(len(column_order))):
        columns = make(coarse)
        if plan.rules is not None:
            columns = repair_rows(
                coarse, columns, make, plan.rules, plan.codecs, partial(_make_valid_row, plan, recode), rng, exact
            )
        arrays = [as_released(columns[name], ranges[name]) for name in column_order]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plan_columns(plan: EncodingPlan, columns: Sequence[str]) -> EncodingPlan:
    """Return a plan with the codecs of ``columns`` and of the helpers they read."""
    helpers = (helper for name in columns for helper in plan.get_codec(name).helpers)
    return plan.only({*columns, *helpers})


def _redraw_columns(
    plan: EncodingPlan,
    coarse: Mapping[str, NDArray[Any]],
    fine: Mapping[str, NDArray[np.int64]],
    draws: Mapping[str, FineCodes],
    rng: np.random.Generator,
    rows: NDArray[np.int64],
) -> dict[str, pa.Array]:
    """Return new values of ``plan``'s columns, drawn inside the codes of some rows; helper codes stay."""
    codes = {
        c.attribute: draws[c.attribute](coarse[c.attribute][rows], rng) if c.ranges() else fine[c.attribute][rows]
        for c in plan.codecs
    }
    return plan.decode(codes, rng)


def _list_common_places(
    coarse: Mapping[str, NDArray[Any]], together: Sequence[Sequence[str]], rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Return each value's position inside its code, shape (rows,), for every attribute of a group.

    The attributes of one group share one draw.
    """
    places: dict[str, NDArray[np.float64]] = {}
    for group in together:
        places |= dict.fromkeys(group, rng.random(len(coarse[group[0]])))
    return places


def seed_generator(seed: int) -> np.random.Generator:
    """Return the random generator of this step for ``synthesis.seed``."""
    return np.random.default_rng([seed, 0xDEC0DE])


def iterate_fine_codes(
    codes: CodeTable, recode: Recode, rng: np.random.Generator, model: RelatedPlaces | None = None
) -> Iterator[dict[str, NDArray[np.int64]]]:
    """Yield fine codes by attribute, a batch of rows at a time; the rows come in random order.

    Each coarse code is replaced by one of its fine codes, drawn by the recode's weights; ``model`` gives related
    values' positions inside their codes.
    """
    draws = {a: FineCodes(recode[a]) for a in codes.domain.attributes}
    for coarse in _iterate_batches(codes, rng, choose_batch_rows(len(codes.domain.attributes))):
        places = {} if model is None else model.draw(coarse, rng)
        fine = {a: refine(coarse[a], rng) for a, refine in draws.items() if a not in places}
        yield fine | {a: draws[a].find_at(coarse[a], place)[0] for a, place in places.items()}


def _iterate_batches(codes: CodeTable, rng: np.random.Generator, batch_rows: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield coarse codes by attribute, at most ``batch_rows`` rows at a time; the rows come in random order."""
    order = rng.permutation(codes.rows)
    for start in range(0, codes.rows, batch_rows):
        rows = order[start : start + batch_rows]
        yield {a: codes.column(a)[rows] for a in codes.domain.attributes}


def _make_valid_row(plan: EncodingPlan, recode: Recode, codes: Mapping[str, int]) -> dict[str, pa.Array]:
    """Return a row with these coarse codes that breaks no rule; spec admission has shown that one exists.

    Raises ValueError if there is none.
    """
    fine = {a: int(np.flatnonzero(recode[a].kept & (recode[a].coarse == code))[0]) for a, code in codes.items()}
    row = find_valid_row(plan, fine)
    if row is None:
        raise ValueError("no row satisfies the rules")
    return row


def build_decoded_schema(plan: EncodingPlan, column_order: Sequence[str]) -> pa.Schema:
    """Return the names, types and nullability of the synthetic table, from the public spec alone."""
    return build_released_schema(plan.ranges(), column_order)


_NULLABLE = {
    "bool": "boolean",
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
}
"""Arrow type -> the nullable pandas type."""


def build_released_schema(ranges: Mapping[str, ValueRange], order: Sequence[str]) -> pa.Schema:
    """Return the synthetic table's schema with its pandas types, from the public spec alone."""
    fields = [pa.field(name, get_released_type(ranges[name]), nullable=ranges[name].nullable) for name in order]
    return pa.schema(fields, metadata={"pandas": json.dumps(_describe_pandas(fields))})


def get_released_type(domain: ValueRange) -> pa.DataType:
    """Return the column's type; text categories are dictionary-encoded."""
    is_text = domain.values is not None and pa.types.is_string(domain.type)
    return pa.dictionary(pa.int32(), pa.string()) if is_text else domain.type


def as_released(array: pa.Array, domain: ValueRange) -> pa.Array:
    """Return the values with the released type, the dictionary in the spec's order."""
    if not pa.types.is_dictionary(get_released_type(domain)):
        return array
    if pa.types.is_dictionary(array.type) and array.dictionary.equals(domain.values):
        return array
    return pa.DictionaryArray.from_arrays(pc.index_in(array, value_set=domain.values).cast(pa.int32()), domain.values)


def _describe_pandas(fields: Sequence[pa.Field]) -> dict[str, Any]:
    """Return pyarrow's pandas metadata: which columns are integers or booleans with nulls."""
    columns = []
    for field in fields:
        types = {"pandas_type": str(field.type), "numpy_type": _name_numpy_type(field), "metadata": None}
        columns.append({"name": field.name, "field_name": field.name, **types})
    return {"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}


def _name_numpy_type(field: pa.Field) -> str:
    name = str(field.type)
    if field.nullable and name in _NULLABLE:
        return _NULLABLE[name]
    return name if pa.types.is_integer(field.type) or pa.types.is_boolean(field.type) else "object"

"""Step *decode* (postprocess): turn synthetic codes into rows with the source's names and the spec's types and values.

Paper: section 5.3 (a combined value is replaced by one of its values, by the noisy one-way); bins as in DPSyn, section
5.4.

Columns whose values belong together in a row: a common shape inside their codes, values close, or compared.

Post-processing of noisy tables.  The spec states publicly that values of these columns lie close together in every row
(DPSyn report, section 5.3, treats all times of a row as one).

Compared columns get values whose difference lies in the cell of its code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.tables import ValueRange, choose_batch_rows
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import Floats
from privsyn.tasks.codecs.derived import DifferenceCodec
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.recode import AttributeRecode, Recode
from privsyn.tasks.estimation.smooth_counts import with_tails
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.rules.repair import find_valid_row, repair_rows
from privsyn.tasks.synthesis.fine_codes import FineCodes, RelatedPlaces, fit_related_places

Cells = Mapping[str, NDArray[np.int32]]
"""Attribute -> the public bin of every fine code but null, -1 for an exact value."""

NEAR_BINS = 1
"""Largest distance of a row's values, in bins: two close values may lie on both sides of an edge."""


def with_common_shapes(recode: Recode, together: Sequence[Sequence[str]], cells: Cells) -> Recode:
    """Return the recode with common weights inside the codes of the attributes of each group.

    Otherwise noise in the cells would map one place in a code to a different value in each column.  An attribute whose
    cells differ from the cells of the group's first attribute keeps its weights.
    """
    shaped = dict(recode)
    for group in together:
        alike = _list_same_cells(group, cells)
        pooled = np.sum([np.maximum(recode[a].estimate[: len(cells[a])], 0.0) for a in alike], axis=0)
        for a in alike:
            shaped[a] = replace(recode[a], weight=_shape_weights(recode[a], pooled))
    return shaped


def _list_same_cells(group: Sequence[str], cells: Cells) -> list[str]:
    """Return the attributes of a group with the same cells as its first attribute."""
    first = cells.get(group[0])
    return [a for a in group if first is not None and a in cells and np.array_equal(cells[a], first)]


def _shape_weights(recode: AttributeRecode, pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights, shape (fine size,), from the ``pooled`` counts plus the attribute's own shrunk departure.

    The departure keeps the share that noise does not explain (positive-part James-Stein).
    """
    weight = recode.weight.copy()
    for code in np.unique(recode.coarse[recode.kept]):
        members = np.flatnonzero(recode.kept & (recode.coarse == code))
        if len(members) < 2 or members[-1] >= len(pooled) or pooled[members].sum() <= 0:
            continue
        share, total = pooled[members] / pooled[members].sum(), recode.estimate[members].sum()
        apart = recode.estimate[members] - share * total
        noise = float(recode.variance[members].sum() * (1 - 1 / len(members)))
        keep = max(0.0, 1.0 - noise / max(float(apart @ apart), 1e-9)) if total > 0 else 0.0
        shaped = np.maximum(share + keep * (weight[members] - share), 0.0)
        weight[members] = shaped / shaped.sum()
    return weight


def gather(
    codes: dict[str, NDArray[np.int64]],
    places: dict[str, NDArray[np.float64]],
    together: Sequence[Sequence[str]],
    cells: Cells,
    rng: np.random.Generator,
) -> None:
    """Move values that lie more than NEAR_BINS bins from a uniformly drawn value of their row to that value.

    Changes the fine ``codes`` and the ``places`` in them, shape (rows,) each, in place.

    Only intervals are drawn and moved; null and exact values stay.  The draw does not depend on the values, so no bin
    gains rows on average, even if the columns' relations are unknown.
    """
    for group in together:
        alike = _list_same_cells(group, cells)
        if len(alike) < 2:
            continue
        of_code = np.append(cells[alike[0]], -1)
        fine, inside = (np.stack([values[a] for a in alike]) for values in (codes, places))
        bins = of_code[np.minimum(fine, len(of_code) - 1)].astype(np.int64)
        number = np.cumsum(bins >= 0, axis=0)
        chosen = 1 + np.floor(rng.random(fine.shape[1]) * number[-1])
        carrier = ((number == chosen) & (bins >= 0)).argmax(axis=0)
        rows = np.arange(fine.shape[1])
        far = (bins >= 0) & (np.abs(bins - bins[carrier, rows]) > NEAR_BINS)
        for i, a in enumerate(alike):
            codes[a][far[i]] = fine[carrier, rows][far[i]]
            places[a][far[i]] = inside[carrier, rows][far[i]]


REDRAWS = 24
"""How often a row's two values are redrawn inside their codes, with one of them placed by the wanted difference."""

Redraw = Callable[[NDArray[np.int64]], Mapping[str, pa.Array]]
"""Redraws the values of the two columns inside the codes of some rows."""


def keep_difference(
    codec: DifferenceCodec,
    columns: dict[str, pa.Array],
    fine: Mapping[str, NDArray[np.integer[Any]]],
    recode: Recode,
    redraw: Redraw,
    rng: np.random.Generator,
) -> None:
    """Put values into ``columns``, in place, whose differences lie in the cells of the codes ``fine``.

    Values stay in their codes if these allow the difference.  Otherwise one of the two values, chosen at random, leaves
    its code: the difference is known more finely than the codes.  Null and exact values stay.
    """
    wanted = np.asarray(fine[codec.attribute]).astype(np.int64)
    parts = [_ComparedColumn(part, fine[part.attribute], recode) for part in (codec.first, codec.second)]
    numbers = [part.codec.count_numbers(columns[part.codec.attribute]) for part in parts]
    changed = [np.zeros(len(wanted), dtype=bool) for _ in parts]
    moves = (wanted != codec.missing) & ~parts[0].fixed & ~parts[1].fixed
    rows_to_move = np.flatnonzero(moves & (codec.find_codes(*numbers) != wanted))
    for attempt in range(REDRAWS + 1):
        if not rows_to_move.size:
            break
        if attempt:
            drawn = redraw(rows_to_move)
            now = [part.codec.count_numbers(drawn[part.codec.attribute]) for part in parts]
        else:
            now = [column_numbers[rows_to_move] for column_numbers in numbers]
        last = attempt == REDRAWS
        side = rng.random(rows_to_move.size) < 0.5 if last else np.full(rows_to_move.size, bool(attempt % 2))
        gap = codec.draw(wanted[rows_to_move], rng)
        moved = [codec.round(now[1] + gap), codec.round(now[0] - gap)]
        now = [np.where(side, moved[0], now[0]), np.where(side, now[1], moved[1])]
        fits = codec.find_codes(*now) == wanted[rows_to_move]
        for candidate, either, part in zip(now, moved, parts, strict=True):
            # On the last attempt both moves must stay in bounds; otherwise values near a bound would all move one way.
            cells = part.find_cells(candidate)
            fits &= cells >= 0
            fits &= part.find_cells(either) >= 0 if last else part.keeps_code(rows_to_move, cells)
        rows = rows_to_move[fits]
        for column_numbers, new, marks in zip(numbers, now, changed, strict=True):
            column_numbers[rows], marks[rows] = new[fits], True
        rows_to_move = rows_to_move[~fits]
    for part, column_numbers, marks in zip(parts, numbers, changed, strict=True):
        if marks.any():
            name = part.codec.attribute
            values = part.codec.release_numbers(np.where(marks, column_numbers, part.codec.bounds[0]))
            columns[name] = pc.if_else(pa.array(marks), values, columns[name])


class _ComparedColumn:
    """One of two compared columns: its coarse codes by row, and the rows whose values cannot move."""

    def __init__(self, codec: OrderedCodec, fine: NDArray[np.integer[Any]], recode: Recode) -> None:
        self.codec, self._coarse_of = codec, recode[codec.attribute].coarse
        self.fixed = codec.stands_alone[fine]
        self._code = self._coarse_of[fine]

    def find_cells(self, numbers: Floats) -> NDArray[np.int64]:
        """Return the fine code of each number, -1 if it is in no interval of the column."""
        low, high = self.codec.bounds
        fine = self.codec.encode({self.codec.attribute: self.codec.release_numbers(numbers)})[0].astype(np.int64)
        return np.where((numbers >= low) & (numbers <= high) & ~self.codec.stands_alone[fine], fine, -1)

    def keeps_code(self, rows: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether these fine codes lie in the coarse codes of ``rows``."""
        return np.asarray(self._coarse_of[cells] == self._code[rows])


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
    """Yield the synthetic table as batches of :func:`build_released_batch`; rows in random order.

    Post-processing of noisy tables only; the same ``seed`` gives the same rows.  No row breaks a rule of the plan.
    ``exact``: attributes with one value per code, which repairs of a row leave alone.  ``related``: whether relations
    continue inside codes (tasks/synthesis/fine_codes.py); ``asked_pairs``: for which pairs, None for all.
    """
    rng = seed_generator(seed)
    recode, plan = with_tails(with_common_shapes(recode, plan.together, plan.interval_bins), plan)
    ranges = plan.list_table_ranges(column_order)
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
        common: dict[str, Floats] = {}
        for group in plan.together:  # the attributes of one group share one draw of positions inside codes
            common |= dict.fromkeys(group, rng.random(len(coarse[group[0]])))
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
        yield build_released_batch(columns, ranges)


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


_NULLABLE = {
    "bool": "boolean",
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
}
"""Arrow type -> the nullable pandas type."""


def build_released_batch(columns: Mapping[str, pa.Array], ranges: Mapping[str, ValueRange]) -> pa.RecordBatch:
    """Return the columns of ``ranges``, in order, as a batch of the synthetic table."""
    arrays = [as_released(columns[name], domain) for name, domain in ranges.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=build_released_schema(ranges))


def build_released_schema(ranges: Mapping[str, ValueRange]) -> pa.Schema:
    """Return the synthetic table's schema with its pandas types, from the public spec alone; columns in order."""
    fields = [pa.field(name, get_released_type(domain), nullable=domain.nullable) for name, domain in ranges.items()]
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

"""Step *make persons without rows* (postprocess): draw parent-table rows for synthetic persons that have no row.

Not in the paper.  They copy the constant attributes of synthetic persons with rows, reweighted to the noisy counts of
persons without rows, one attribute at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import BATCH_ROWS, ValueRange
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.estimation.shrink_departures import shrink_counts
from privsyn.tasks.panels.transitions import project_to_sum
from privsyn.tasks.rules.compiled_rules import CompiledRules
from privsyn.tasks.steps.decode import as_released, build_released_schema

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

ROUNDS = 20
"""Raking rounds that fit the weights of persons to the noisy counts."""

DRAWS = 20
"""How often a row that breaks a rule is redrawn before it is left out."""

MOST_HEAVIER = 100.0
"""The most that one synthetic person may weigh as a model of persons without rows, as a multiple of the mean."""


def list_ranges(
    plan: EncodingPlan, column_order: Sequence[str], parent_columns: Collection[str]
) -> dict[str, ValueRange]:
    """Return the public domains of the parent table's released columns, in the table's order."""
    ranges = plan.ranges()
    return {name: ranges[name] for name in column_order if name in parent_columns}


def build_schema(plan: EncodingPlan, column_order: Sequence[str], parent_columns: Collection[str]) -> pa.Schema:
    """Return the names, types and nullability of the rows, from the public spec alone."""
    ranges = list_ranges(plan, column_order, parent_columns)
    return build_released_schema(ranges, list(ranges))


def make_without_rows(
    linked: Iterable[pa.RecordBatch],
    plan: EncodingPlan,
    recode: Recode,
    noisy: Sequence[tuple[Query, Floats]],
    column_order: Sequence[str],
    parent_columns: Collection[str],
    seed: int,
    scale: float = 1.0,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of the columns ``parent_columns``; no row breaks a rule about these columns alone.

    ``linked``: the synthetic rows, as codes; ``noisy``: the counts of persons without rows; ``scale``: how many
    synthetic persons stand for one counted person.
    """
    ranges, rng = list_ranges(plan, column_order, parent_columns), np.random.default_rng([seed, 0x0BA5E])
    persons = _read_persons(linked, plan)
    expected, weights = _weigh(persons, recode, noisy)
    remaining = round(expected * scale) if len(weights) else 0
    drawing = _Drawing(plan, parent_columns, persons, weights, rng)
    schema = build_released_schema(ranges, list(ranges))
    while remaining > 0:
        rows = min(remaining, BATCH_ROWS)
        columns = drawing.draw(rows)
        arrays = [as_released(columns[name], domain) for name, domain in ranges.items()]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        remaining -= rows


def _read_persons(linked: Iterable[pa.RecordBatch], plan: EncodingPlan) -> dict[str, Integers]:
    """Return the fine codes of every person's constant attributes, shape (persons,)."""
    panel = plan.get_order()[0]
    names = [c.attribute for c in plan.row_plan.codecs if {*c.sources} <= {*panel.constant}]
    parts: dict[str, list[Integers]] = {name: [np.empty(0, np.int64)] for name in names}
    for batch in linked:
        drawn = np.asarray(batch.column(panel.rows)) > 0
        for name, codes in parts.items():
            codes.append(np.asarray(batch.column(name))[drawn].astype(np.int64))
    return {name: np.concatenate(codes) for name, codes in parts.items()}


def _weigh(persons: dict[str, Integers], recode: Recode, noisy: Sequence[tuple[Query, Floats]]) -> tuple[float, Floats]:
    """Return the estimated number of persons without rows, and the probability that each person is a model of one."""
    total = estimate_without(noisy)
    codes, wanted = [], []
    for query, counts in noisy:
        (a,) = query.attributes
        code = np.minimum(recode[a].coarse[persons[a]], len(counts) - 1)
        shares = np.bincount(code, minlength=len(counts)) / max(len(code), 1)
        codes.append(code)
        wanted.append(project_to_sum(shrink_counts(counts, total * shares, query.sigma), total))
    weights = rake(codes, wanted, _limit_weight)
    return total, weights / max(float(weights.sum()), 1e-300)


def _limit_weight(weights: Floats) -> float:
    """Return the largest weight that one person may have."""
    return MOST_HEAVIER * max(float(weights.mean()) if len(weights) else 0.0, 1e-300)


def estimate_without(noisy: Sequence[tuple[Query, Floats]]) -> float:
    """Return the number of persons without rows, estimated from all their noisy counts."""
    precision = np.array([1 / (len(counts) * query.sigma**2) for query, counts in noisy])
    return max(float(precision @ [counts.sum() for _, counts in noisy] / precision.sum()), 0.0)


def rake(codes: Sequence[Integers], wanted: Sequence[Floats], get_most: Callable[[Floats], float]) -> Floats:
    """Rake weights of rows, so that their sums by each attribute's codes approach ``wanted``.

    ``codes``: one array per attribute, shape (rows,); ``get_most``: the largest allowed weight, given all weights.
    """
    weights = np.ones(len(codes[0]))
    for _ in range(ROUNDS):
        for code, target in zip(codes, wanted, strict=True):
            sums = np.bincount(code, weights=weights, minlength=len(target))
            weights *= (target / np.maximum(sums, 1e-300))[code]
        weights = np.minimum(weights, get_most(weights))
    return weights


class _Drawing:
    """Draws rows of the parent table."""

    def __init__(
        self,
        plan: EncodingPlan,
        parent_columns: Collection[str],
        persons: dict[str, Integers],
        weights: Floats,
        rng: np.random.Generator,
    ) -> None:
        held = tuple(c for c in plan.row_plan.codecs if c.attribute in persons)
        computed = tuple(c for c in plan.computed if c.attribute in parent_columns)
        drawn = tuple(c for c in plan.unmeasured if c.column in parent_columns)
        rules = None if plan.rules is None else _keep_rules(plan.rules, parent_columns)
        self._plan = EncodingPlan(held, computed, rules, (), drawn)
        self._persons, self._rng = persons, rng
        self._order = np.lexsort([*persons.values()])
        self._cumulative = np.cumsum(weights[self._order])

    def draw(self, rows: int) -> dict[str, pa.Array]:
        """Return ``rows`` rows that break no rule, or fewer if redraws keep breaking one."""
        columns = self._draw(rows)
        rules = self._plan.rules
        if rules is None or not rules.conditions:
            return columns
        for _ in range(DRAWS):
            broken = rules.find_broken_rows(columns).any(axis=0)
            if not broken.any():
                return columns
            anew, place = self._draw(int(broken.sum())), np.arange(rows)
            place[broken] = rows + np.arange(int(broken.sum()))
            columns = {
                name: pa.chunked_array([array, anew[name]]).combine_chunks().take(pa.array(place))
                for name, array in columns.items()
            }
        valid = pa.array(~rules.find_broken_rows(columns).any(axis=0))
        return {name: array.filter(valid) for name, array in columns.items()}

    def _draw(self, rows: int) -> dict[str, pa.Array]:
        marks = (self._rng.permutation(rows) + self._rng.random()) / rows  # systematic draws
        chosen = np.searchsorted(self._cumulative, marks * self._cumulative[-1], side="right")
        chosen = self._order[np.minimum(chosen, len(self._order) - 1)]
        return self._plan.decode({a: codes[chosen] for a, codes in self._persons.items()}, self._rng)


def _keep_rules(rules: CompiledRules, parent_columns: Collection[str]) -> CompiledRules:
    """Return the rules about parent-table columns alone."""
    known = {*parent_columns}
    return replace(
        rules,
        conditions=tuple(c for c in rules.conditions if {*c.node.columns} <= known),
        derived={name: node for name, node in rules.derived.items() if name in known},
        looked_up={name: table for name, table in rules.looked_up.items() if name in known},
        order=tuple(name for name in rules.order if name in known),
    )

"""Steps *make persons without rows* and *draw records* (postprocess): parent rows without, and with, child rows.

Not in the paper.

**Make persons without rows** draws parent-table rows for synthetic persons that have no row.  They copy the constant
attributes of synthetic persons with rows, reweighted to the noisy counts of persons without rows, one attribute at a
time.

**Draw records** chooses the parent rows that have child rows, and draws one record for each.
A record describes the child rows of one parent row: their number, one of them, and its position.
The parent rows already exist, so their codes stay, and the record's codes are drawn given the parent rows' codes.  The
codes are first drawn by the most informative measured pair, then moved until all measured relations between the two
tables hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.tables import BATCH_ROWS, ValueRange
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.estimation.marginals import Marginal, list_one_ways
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.estimation.shrink_departures import shrink_counts
from privsyn.tasks.estimation.towards_prior import count_noisy_rows
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count
from privsyn.tasks.kernels.streams import derive_stream
from privsyn.tasks.panels.rows_above import Numbered
from privsyn.tasks.panels.transitions import project_to_sum
from privsyn.tasks.rules.compiled_rules import CompiledRules
from privsyn.tasks.steps.decode import build_released_batch

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

ROUNDS = 20
"""Raking rounds that fit the weights of persons to the noisy counts."""

DRAWS = 20
"""How often a row that breaks a rule is redrawn before it is left out."""

MOST_HEAVIER = 100.0
"""The most that one synthetic person may weigh as a model of persons without rows, as a multiple of the mean."""

Codes: TypeAlias = NDArray[Any]

LEAST_SHARE = 1e-9
"""Cells with a smaller share are left out of a pair's mutual information."""


def list_ranges(
    plan: EncodingPlan, column_order: Sequence[str], parent_columns: Collection[str]
) -> dict[str, ValueRange]:
    """Return the public domains of the parent table's released columns, in the table's order."""
    ranges = plan.ranges()
    return {name: ranges[name] for name in column_order if name in parent_columns}


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
    while remaining > 0:
        rows = min(remaining, BATCH_ROWS)
        yield build_released_batch(drawing.draw(rows), ranges)
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
    return max(count_noisy_rows([counts for _, counts in noisy], [query.sigma for query, _ in noisy]), 0.0)


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


def encode_above(
    rows: Iterable[Numbered], plan: EncodingPlan, recode: Recode
) -> tuple[NDArray[np.int64], dict[str, Codes]]:
    """Return the numbers of the parent rows, and their coarse codes by attribute."""
    only = plan.row_plan.only(plan.constant)
    numbers: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    parts: dict[str, list[Codes]] = {}
    for a in only.domain.attributes:
        parts[a] = [np.empty(0, choose_code_dtype(recode[a].size))]
    for number, batch in rows:
        numbers.append(number)
        fine = encode_batch(batch, only, Repairs())
        for a, coarse_parts in parts.items():
            coarse = np.minimum(recode[a].coarse[np.asarray(fine.column(a))], recode[a].size - 1)
            coarse_parts.append(coarse.astype(coarse_parts[0].dtype))
    return np.concatenate(numbers), {a: np.concatenate(coarse_parts) for a, coarse_parts in parts.items()}


def choose_above(
    parent_codes: Mapping[str, Codes], noisy: Sequence[tuple[Query, Floats]], marginals: Sequence[Marginal], seed: int
) -> NDArray[np.bool_]:
    """Return which parent rows have child rows, shape (parent rows,).

    ``parent_codes``: the parents' coarse codes; ``noisy``: counts of the parents without rows, by each attribute's
    codes; ``marginals``: consistent counts of the parents with rows.  In every code the share of parents without rows
    follows these counts.
    """
    one_ways = list_one_ways(marginals)
    rows, total = len(next(iter(parent_codes.values()))), estimate_without(noisy)
    if total <= 0 or rows == 0:
        return np.ones(rows, bool)
    codes, wanted = [], []
    for query, counts in noisy:
        (a,) = query.attributes
        having = one_ways[a]
        without = shrink_counts(counts, total * having / max(float(having.sum()), 1e-9), query.sigma)
        without = project_to_sum(without, total)
        share = without / np.maximum(without + having, 1e-9)
        codes.append(parent_codes[a].astype(np.int64))
        wanted.append(share * np.bincount(codes[-1], minlength=len(share)))
    mean = float(np.mean([target.sum() for target in wanted]))
    wanted = [target * (mean / max(float(target.sum()), 1e-9)) for target in wanted]
    without_rows = np.minimum(rake(codes, wanted, lambda weights: 1.0), 1.0)
    rng = np.random.default_rng([seed, 0x0AB0])
    order = rng.permutation(rows)
    marks = np.floor(np.cumsum(without_rows[order]) + rng.random())
    has_rows = np.empty(rows, bool)
    has_rows[order] = np.diff(marks, prepend=0.0) == 0
    return has_rows


def draw_records(
    parent_codes: Mapping[str, Codes], marginals: Sequence[Marginal], domain: Domain, seed: int, threads: int
) -> CodeTable:
    """Return one record per parent row, in their order, as codes of ``domain``.

    ``parent_codes``: the parent rows' coarse codes, which stay as they are; ``marginals``: consistent, including the
    one-ways.
    """
    from privsyn.tasks.panels.link_rows import fit_relations  # these here: compiled code loads slowly
    from privsyn.tasks.synthesis.sweep import draw_attribute

    rows = len(next(iter(parent_codes.values())))
    one_ways = list_one_ways(marginals)
    drawn = tuple(a for a in domain.attributes if a not in parent_codes)
    relations = [m for m in marginals if len(m.attributes) > 1 and not set(m.attributes).isdisjoint(drawn)]
    new: dict[str, Codes] = {}
    for a in drawn:
        pair = _find_telling_pair(a, parent_codes, relations)
        address = derive_stream(seed, 0xD2A3, domain.index(a))
        new[a] = draw_attribute(a, pair, parent_codes, rows, one_ways[a], address)
    held = {a: code for a, code in parent_codes.items() if any(a in m.attributes for m in relations)}
    if rows:
        sizes = dict(zip(domain.attributes, domain.sizes, strict=True))
        fit_relations(new, [], held, sizes, relations, seed, choose_thread_count(threads))
    return CodeTable(domain, tuple(np.ascontiguousarray({**new, **parent_codes}[a]) for a in domain.attributes))


def _find_telling_pair(
    attribute: str, parent_codes: Mapping[str, Codes], relations: Sequence[Marginal]
) -> Marginal | None:
    """Return the attribute's measured pair with the most informative parent attribute, or None."""
    measured = [m for m in relations if attribute in m.attributes]
    pairs = [m.project((other, attribute)) for m in measured for other in m.attributes if other in parent_codes]
    return max(pairs, key=lambda pair: _measure_information(pair.counts), default=None)


def _measure_information(counts: Floats) -> float:
    """Return the mutual information of a pair, in nats."""
    shares = counts / max(float(counts.sum()), 1e-300)
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    has_count = shares > LEAST_SHARE
    return float((shares[has_count] * np.log(shares[has_count] / expected[has_count])).sum())

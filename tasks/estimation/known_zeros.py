"""Cells that rules forbid: known zeros of every marginal, for consistency and synthesis.

Columns that are null together, found in noisy pairs: their joint cells of null and a value are then empty.

Surveys skip questions in blocks: people who were not asked one question were not asked others.  Then a pair has one or
two empty blocks of cells: null in one column and a value in the other.  Noise leaves rows in these cells, and no table
can match what many pairs leave there.  So the rows of each block are estimated, and empirical Bayes finds the empty
blocks (expectation maximization over all blocks).  The prior for any other block is uniform up to its largest possible
number of rows.  The relation "null wherever another column is null" is transitive.

In a chain of columns with slightly rising numbers of nulls, noise may tie each column to the next and so all to one
another.  The one-ways prevent it: columns are tied only if all of their numbers of nulls agree.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.tables import EMPTY_CELLS
from privsyn.tasks.codecs.derived import SplitCodec
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import AttributeRecode, Recode, build_coarse_domain
from privsyn.tasks.rules.compiled_rules import MAX_GRID, CompiledRules

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class KnownZeros:
    """Joint codes that rules forbid: ``tables`` holds (attributes, mask of their shape), one per set of attributes.

    ``implied``: the same for every pair with forbidden joint codes, directly or through other attributes.
    """

    tables: tuple[tuple[Clique, Bools], ...] = ()
    implied: tuple[tuple[Clique, Bools], ...] = ()

    @property
    def tied(self) -> frozenset[str]:
        """The attributes with forbidden joint codes."""
        return frozenset(a for clique, _ in self.tables if len(clique) > 1 for a in clique)

    @property
    def cliques(self) -> list[Clique]:
        """The sets of two or more attributes that are synthesized together."""
        return [clique for clique, _ in self.tables if len(clique) > 1]

    def on(self, attributes: Sequence[str], shape: Sequence[int]) -> Bools | None:
        """Return the mask of a marginal's cells that no row can be in, whatever its other attributes are.

        None if it has no such cells, or only such cells.
        """
        zeros = np.zeros(shape, dtype=bool)
        numbers = {n for a in attributes for n in self._holding.get(a, ())}
        numbers |= {n for pair in combinations(attributes, 2) for n in self._of_pairs.get(frozenset(pair), ())}
        for number in sorted(numbers):
            clique = self._every[number][0]
            inside = [a for a in attributes if a in clique]
            mask = self._project_known(number, frozenset(inside))
            if mask is not None:
                axes = [a for a in clique if a in inside]
                mask = mask.transpose([axes.index(a) for a in inside])
                zeros |= mask.reshape([n if a in clique else 1 for a, n in zip(attributes, shape, strict=True)])
        return zeros if zeros.any() and not zeros.all() else None

    def _project_known(self, number: int, inside: frozenset[str]) -> Bools | None:
        """Return the mask of ``inside`` codes that table ``number`` forbids, or None; every marginal asks for it."""
        key = number, inside
        if key not in self._projections:
            clique, forbidden = self._every[number]
            mask = np.asarray(forbidden.all(axis=tuple(i for i, a in enumerate(clique) if a not in inside)))
            self._projections[key] = mask if mask.any() else None
        return self._projections[key]

    @cached_property
    def _every(self) -> tuple[tuple[Clique, Bools], ...]:
        return (*self.tables, *self.implied)

    @cached_property
    def _of_pairs(self) -> dict[frozenset[str], list[int]]:
        """The numbers of each pair's tables."""
        numbers_by_pair: dict[frozenset[str], list[int]] = {}
        for number, (clique, _) in enumerate(self._every):
            if len(clique) == 2:
                numbers_by_pair.setdefault(frozenset(clique), []).append(number)
        return numbers_by_pair

    @cached_property
    def _holding(self) -> dict[str, list[int]]:
        """The numbers of the tables that may restrict an attribute without all of their other attributes.

        A pair's table restricts one of its attributes only if it forbids a code of it entirely.
        """
        numbers_by_attribute: dict[str, list[int]] = {}
        for number, (clique, _) in enumerate(self._every):
            for a in clique:
                if len(clique) != 2 or self._project_known(number, frozenset((a,))) is not None:
                    numbers_by_attribute.setdefault(a, []).append(number)
        return numbers_by_attribute

    @cached_property
    def _projections(self) -> dict[tuple[int, frozenset[str]], Bools | None]:
        return {}


_last: tuple[weakref.ref[EncodingPlan], dict[str, tuple[bytes, bytes]], KnownZeros] | None = None
"""The last plan, its coarse codes and the answer; the weak reference never matches a deleted plan."""


def build_known_zeros(plan: EncodingPlan, recode: Recode) -> KnownZeros:
    """Return the joint codes of ``recode`` that the plan's rules forbid.

    A coarse cell is forbidden if every row of every fine cell in it meets a condition.  Conditions over more than
    MAX_GRID cells are left to the repair of rows.  The last answer is cached: three steps of a run ask for it.
    """
    global _last
    if plan.rules is None:
        return KnownZeros()
    codes = {a: (r.coarse.tobytes(), r.kept.tobytes()) for a, r in recode.items()}
    if _last is None or _last[0]() is not plan or _last[1] != codes:
        _last = weakref.ref(plan), codes, _build_known_zeros(plan, plan.rules, recode)
    return _last[2]


def _build_known_zeros(plan: EncodingPlan, rules: CompiledRules, recode: Recode) -> KnownZeros:
    zeros: dict[Clique, Bools] = {}
    domain = build_coarse_domain(recode)
    for clique, surely in _find_contradictions(plan):
        for axis, attribute in enumerate(clique):
            surely = _coarsen(surely, axis, recode[attribute])
        if surely.any():
            zeros[clique] = surely
    cells = {name: c for codec in plan.codecs for name, c in codec.value_bounds().items()}
    for condition in rules.conditions:
        codecs = [c for c in plan.codecs if set(c.ranges()) & set(condition.needs)]
        if not codecs or prod(c.size for c in codecs) > MAX_GRID:
            continue
        surely = rules.find_impossible_cells(condition, cells, [tuple(c.ranges()) for c in codecs])
        surely = np.broadcast_to(surely, [c.size for c in codecs])
        for axis, codec in enumerate(codecs):
            surely = _coarsen(surely, axis, recode[codec.attribute])
        clique = tuple(c.attribute for c in codecs)
        if surely.any():
            zeros[clique] = surely | zeros.get(clique, False)
    compositions = find_forbidden_compositions(plan)
    if compositions is not None:
        attribute = plan.get_compositions().attribute
        zeros[attribute,] = _coarsen(compositions, 0, recode[attribute])
    tables = tuple((c, mask) for c, mask in zeros.items() if mask.shape == domain.shape(c))
    return KnownZeros(tables, imply_zeros(tables))


def find_forbidden_compositions(plan: EncodingPlan) -> Bools | None:
    """Return which household compositions the rules about roles alone forbid; None if there are no such rules."""
    rules = plan.rules
    if rules is None or not rules.role_conditions:
        return None
    panel, order = plan.get_order()
    members = plan.get_compositions().members
    size = members.sum(axis=1)
    roles = np.repeat(np.tile(np.arange(members.shape[1]), len(members)), members.ravel())
    first = np.zeros(len(roles), bool)
    first[np.cumsum(size) - size] = True
    table = {panel.order: order.decode(roles, np.random.default_rng(0))[panel.order]}
    broken = replace(rules, across=rules.role_conditions).find_broken_persons(table, first).any(axis=0)
    return np.asarray(np.logical_or.reduceat(broken, np.cumsum(size) - size))


def _find_contradictions(plan: EncodingPlan) -> Iterator[tuple[Clique, Bools]]:
    """Yield, for each codec split by a computed column, the joint codes whose computed value lies in another bin."""
    for codec in plan.codecs:
        if isinstance(codec, SplitCodec):
            names = [codec.attribute, *(other.attribute for other in codec.others)]
            clique = plan.domain.ordered(names)
            yield clique, codec.forbidden().transpose([names.index(a) for a in clique])


def _coarsen(surely: Bools, axis: int, recode: AttributeRecode) -> Bools:
    """Coarsen one axis of a mask: a coarse code is forbidden if all of its fine codes are."""
    members = np.flatnonzero(recode.kept)
    order = members[np.argsort(recode.coarse[members], kind="stable")]
    starts = np.searchsorted(recode.coarse[order], np.arange(recode.size))
    return np.asarray(np.logical_and.reduceat(surely.take(order, axis=axis), starts, axis=axis))


def restrict_to_domain(zeros: KnownZeros, domain: Domain) -> KnownZeros:
    """Return the tables of ``zeros`` with all attributes in ``domain``."""
    attributes = set(domain.attributes)
    if all(attributes.issuperset(clique) for clique, _ in (*zeros.tables, *zeros.implied)):
        return zeros
    tables, implied = (
        tuple((c, mask) for c, mask in t if attributes.issuperset(c)) for t in (zeros.tables, zeros.implied)
    )
    return KnownZeros(tables, implied)


def imply_zeros(tables: Sequence[tuple[Clique, Bools]]) -> tuple[tuple[Clique, Bools], ...]:
    """Return (pair, mask) for each pair whose joint codes ``tables`` forbid, directly or through other attributes.

    For example, if `MSP` and `PINCP` are both null exactly below 15 years, no row has one of them without the other.

    tables: (attributes, mask of their shape).  One pass over the intermediate attributes (Mackworth, "Consistency in
    networks of relations", Artificial Intelligence 8, 1977), so it may miss some implied pairs.
    """
    allowed: dict[Clique, Bools] = {}
    order: dict[str, None] = {}
    for clique, forbidden in tables:
        order |= dict.fromkeys(clique)
        for first, second in combinations(range(len(clique)), 2):
            others = tuple(i for i in range(len(clique)) if i not in (first, second))
            possible = ~np.asarray(forbidden.all(axis=others))
            a, b = clique[first], clique[second]
            allowed[a, b] = possible & allowed.get((a, b), True)
            allowed[b, a] = allowed[a, b].T
    for between in order:
        neighbours = [a for a in order if (a, between) in allowed]
        for a, b in combinations(neighbours, 2):
            way = (allowed[a, between].astype(np.float32) @ allowed[between, b].astype(np.float32)) > 0
            if not way.all():
                allowed[a, b] = way & allowed.get((a, b), True)
                allowed[b, a] = allowed[a, b].T
    return tuple(((a, b), ~allowed[a, b]) for a, b in combinations(order, 2) if not allowed.get((a, b), np.True_).all())


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def label_blocks(forbidden: NDArray[np.bool_]) -> tuple[Ints, Ints] | None:
    """Return the block of every code of the first and the second attribute, from 0; None if there is one block.

    forbidden: mask of the pair's shape.  Blocks are the connected components of the graph of allowed joint codes.
    """
    allowed = ~forbidden
    met = allowed.any(axis=1).all() and allowed.any(axis=0).all()
    if met and (allowed.all(axis=1).any() or allowed.all(axis=0).any()):
        return None  # one code is allowed with all others, which makes one block
    from scipy.sparse import csr_array  # here: most releases have no such pair, and it loads slowly
    from scipy.sparse.csgraph import connected_components

    first, second = forbidden.shape
    links = np.zeros((first + second, first + second), dtype=bool)
    links[:first, first:] = allowed
    number, labels = connected_components(csr_array(links), directed=False)
    return None if number < 2 else (labels[:first].astype(np.int64), labels[first:].astype(np.int64))


SURE = 0.9
"""Least probability that a block is empty, for a block that is treated as empty."""

LEAST_EVIDENCE = 3.0
"""Least likelihood ratio of a block's own rows for an empty block: without it, other blocks alone would decide."""

MOST_DEVIATIONS = 3.0
"""Largest difference between numbers of nulls that agree, in standard deviations."""

_ROUNDS = 100
_CLOSE = 1e-4


def find_null_codes(recode: Recode, nullable: Iterable[str]) -> dict[str, int]:
    """Return the coarse code of null for each ``nullable`` attribute with several codes, one of them null's alone.

    Null is the last fine code of an attribute.
    """
    null_codes = {}
    for a in nullable:
        if a in recode and recode[a].kept[-1] and recode[a].size > 1:
            code = int(recode[a].coarse[-1])
            if int((recode[a].coarse[recode[a].kept] == code).sum()) == 1:
                null_codes[a] = code
    return null_codes


def find_null_zeros(
    pairs: Sequence[Marginal],
    one_ways: Mapping[str, tuple[Floats, Floats]],
    nulls: Mapping[str, int],
    others: Collection[Clique] = (),
) -> KnownZeros:
    """Return the cells of null and a value that are empty by noisy counts, in ``pairs`` and ``others``.

    pairs: noisy, without merged codes; one_ways: attribute -> noisy counts and their variances; nulls: attribute ->
    code of null (:func:`find_null_codes`); pairs with other attributes are not used.
    """
    sides = [(pair, axis) for pair in pairs for axis in (0, 1) if set(pair.attributes) <= nulls.keys()]
    sides = [(pair, axis) for pair, axis in sides if pair.sigma > 0]
    if not sides:
        return KnownZeros()
    rows, deviation, most = np.array([_estimate_rows(pair, axis, one_ways, nulls) for pair, axis in sides]).T
    empty, clear = find_empty_blocks(rows, deviation, most), rows > MOST_DEVIATIONS * deviation
    directions = [(pair.attributes[axis], pair.attributes[1 - axis]) for pair, axis in sides]
    number = {
        a: (float(counts[nulls[a]]), float(variance[nulls[a]]))
        for a, (counts, variance) in one_ways.items()
        if a in nulls
    }
    follows = _list_implied_nulls([direction for direction, e in zip(directions, empty, strict=True) if e], number)
    contradicted = {direction for direction, c in zip(directions, clear, strict=True) if c}
    sizes = {a: len(counts) for a, (counts, _) in one_ways.items()}
    tables = []
    for a, b in dict.fromkeys([*(pair.attributes for pair in pairs), *others]):
        zero = np.zeros((sizes[a], sizes[b]), dtype=bool)
        if b in follows.get(a, ()) and (a, b) not in contradicted:
            zero[nulls[a], np.arange(sizes[b]) != nulls[b]] = True
        if a in follows.get(b, ()) and (b, a) not in contradicted:
            zero[np.arange(sizes[a]) != nulls[a], nulls[b]] = True
        if zero.any():
            tables.append(((a, b), zero))
    return KnownZeros(implied=tuple(tables))


def tabulate_empty_cells(zeros: KnownZeros, measured: Collection[Clique]) -> pa.Table:
    """Return a table of the contract EMPTY_CELLS; ``measured``: the pairs with measured joint counts."""
    parts = [pa.Table.from_pylist([], schema=EMPTY_CELLS.schema)]
    for (a, b), zero in zeros.implied:
        codes, other_codes = (code.astype(np.int32) for code in np.nonzero(zero))
        names = [pa.array([name] * len(codes), pa.string()) for name in (a, b)]
        arrays = [*names, codes, other_codes, np.full(len(codes), (a, b) in measured)]
        parts.append(pa.table(arrays, schema=EMPTY_CELLS.schema))
    return pa.concat_tables(parts)


def read_empty_cells(table: pa.Table, domain: Domain, *, unmeasured: bool) -> KnownZeros:
    """Return the zeros of an EMPTY_CELLS table; ``unmeasured``: also the zeros of unmeasured pairs."""
    zeros: dict[Clique, Bools] = {}
    for row in table.to_pylist():
        if row["measured"] or unmeasured:
            pair = row["attribute"], row["other"]
            zero = zeros.setdefault(pair, np.zeros(domain.shape(pair), dtype=bool))
            zero[row["code"], row["other_code"]] = True
    return KnownZeros(implied=tuple(zeros.items()))


def _estimate_rows(
    pair: Marginal, axis: int, one_ways: Mapping[str, tuple[Floats, Floats]], nulls: Mapping[str, int]
) -> tuple[float, float, float]:
    """Return a block's rows (null in the attribute of ``axis``, a value in the other), their noise, and their maximum.

    The estimate pools the sum of the block's cells with all nulls minus the rows with both null.
    """
    null, other_null = (nulls[pair.attributes[i]] for i in (axis, 1 - axis))
    counts = pair.counts.take(null, axis=axis)
    nulls_of_both, variance = float(counts[other_null]), pair.sigma**2
    all_nulls, variance_of_all = (float(x[null]) for x in one_ways[pair.attributes[axis]])
    by_cells, by_rest = float(counts.sum()) - nulls_of_both, all_nulls - nulls_of_both
    precisions = 1 / (variance * (len(counts) - 1)), 1 / (variance + variance_of_all)
    rows = (by_cells * precisions[0] + by_rest * precisions[1]) / sum(precisions)
    values = one_ways[pair.attributes[1 - axis]][0].sum() - one_ways[pair.attributes[1 - axis]][0][other_null]
    return rows, sum(precisions) ** -0.5, max(min(all_nulls, float(values)), 1.0)


def find_empty_blocks(rows: Floats, deviation: Floats, limit: Floats) -> Bools:
    """Return which blocks are empty, from noisy ``rows`` with standard ``deviation``; all of shape (blocks,).

    ``limit``: largest possible rows of each block.  The prior counts one empty block and one filled block.
    """
    from scipy.special import ndtr  # here: it loads slowly

    if_empty = np.exp(-0.5 * (rows / deviation) ** 2) / (np.sqrt(2 * np.pi) * deviation)
    if_filled = np.maximum(ndtr((limit - rows) / deviation) - ndtr(-rows / deviation), 1e-300) / limit
    share = 0.5
    for _ in range(_ROUNDS):
        chance = share * if_empty / (share * if_empty + (1 - share) * if_filled)
        before, share = share, float((chance.sum() + 1) / (len(chance) + 2))
        if abs(share - before) < _CLOSE:
            break
    return np.asarray((chance >= SURE) & (if_empty >= LEAST_EVIDENCE * if_filled))


def _list_implied_nulls(
    seen: Sequence[tuple[str, str]], number: Mapping[str, tuple[float, float]]
) -> dict[str, frozenset[str]]:
    """Return attribute -> the attributes that are null wherever it is.

    ``seen``: (attribute, another that is null wherever it is); ``number``: attribute -> noisy nulls and their variance.
    """
    import networkx as nx  # here: most releases have no such pair

    graph: nx.DiGraph = nx.DiGraph((a, b) for a, b in seen if _is_fewer(a, b, number))
    for tied in [c for c in nx.strongly_connected_components(graph) if not _agree([number[a] for a in c])]:
        wrong = [(a, b) for a, b in graph.subgraph(tied).edges if (number[a], a) > (number[b], b)]
        graph.remove_edges_from(wrong)
    classes = nx.condensation(graph)  # a class holds attributes that are null in the same rows
    follows: dict[str, frozenset[str]] = {}
    for n in classes:
        reached = {a for m in (n, *nx.descendants(classes, n)) for a in classes.nodes[m]["members"]}
        follows |= {
            a: frozenset(b for b in reached if b != a and _is_fewer(a, b, number)) for a in classes.nodes[n]["members"]
        }
    return follows


def _is_fewer(a: str, b: str, number: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether ``a`` may be null in no more rows than ``b``, within the noise."""
    (first, variance), (second, second_variance) = number[a], number[b]
    return first - second <= MOST_DEVIATIONS * (variance + second_variance) ** 0.5


def _agree(numbers: Sequence[tuple[float, float]]) -> bool:
    """Return whether noisy (number, variance) pairs may have one true number (chi-squared test of their spread)."""
    values, variances = np.array(numbers).T
    mean = (values / variances).sum() / (1 / variances).sum()
    degrees = len(values) - 1
    return bool(((values - mean) ** 2 / variances).sum() <= degrees + MOST_DEVIATIONS * (2 * degrees) ** 0.5)

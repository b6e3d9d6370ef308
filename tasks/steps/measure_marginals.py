"""Steps that count cells with noise: *one-way marginals*, *measure marginals*, *value counts* and *measure sets*.

**One-way marginals** (rho1) count every fine code of every attribute (paper: Algorithm 3, line 1).

**Measure marginals** (rho3) counts the chosen cliques, and one-ways again.
Paper: section 4.2, equation (1), and Theorem 6.

**Locate values** and **value counts** count single values inside heavy cells of numbers.
Not in the paper.  tasks/estimation/frequent_values.py chooses the values and interprets their counts.

**Plan sets** and **measure sets**: joint tables of the column sets that a spec names.
Not in the paper.  A set is measured whole, whatever pairs are chosen, by merged codes of its attributes
(tasks/estimation/merged_codes.py), as many as its noise allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, Merge
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.data_contracts.tables import MERGES, build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.cells import Binning
from privsyn.tasks.estimation.expected_error import compute_size_weight, split_by_weight
from privsyn.tasks.estimation.frequent_values import CountedValues
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.merged_codes import NO_STARTS, CoarseCounts, Starts, count_affordable_cells, merge_codes
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, estimate_total, map_coarse_one_ways
from privsyn.tasks.kernels.counting import Countable, build_code_batch

ROUNDING_WEIGHT = 0.2
"""Budget weight of a heaping attribute; other columns have cells^(2/3), so this is 1 % of a column of 66 cells."""

MEMBERS_PART = 0.4
"""The composition of households gets this part of the one-ways' budget."""

MOST_SHARE = Fraction(1, 2)
"""The most that sets get of the third stage's budget."""

WIDE_COLUMNS = 10
"""Named sets get at least the share that they would get in a table of this many columns, up to WIDE_SHARE."""

WIDE_SHARE = Fraction(1, 10)
"""The largest such minimum share of the third stage's budget."""


def plan_one_ways(
    domain: Domain,
    rho: Fraction,
    records: int,
    *,
    equal: bool = True,
    rounding: Collection[str] = (),
    members: Collection[str] = (),
) -> list[Query]:
    """Return one query per attribute, at rho_i = ``rho / d`` each if ``equal`` (the paper), else by equation (1).

    Equation (1) minimises the summed L1 noise of the one-ways.  ``rounding``: heaping attributes, with weight
    ROUNDING_WEIGHT unless ``equal``: a rough answer is enough.  ``members``: the household composition attribute, which
    gets the part MEMBERS_PART because all rows follow from it.

    Privacy: all d answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Each one-way has L2 sensitivity k (all k records may fall into one cell; Theorem 6 for k = 1) and costs k^2 / (2
    sigma^2) <= rho_i (Theorem 3).  The rho_i sum to ``rho`` and depend only on the public domain.  d mechanism
    instances add up (Theorem 1).
    """
    sized = list(zip(domain.attributes, domain.sizes, strict=True))
    weights = [ROUNDING_WEIGHT if a in rounding else compute_size_weight(size) for a, size in sized]
    rest = sum(w for (a, _), w in zip(sized, weights, strict=True) if a not in members)
    most = rest * MEMBERS_PART / (1 - MEMBERS_PART)
    weights = [most if a in members else w for (a, _), w in zip(sized, weights, strict=True)]
    shares = [rho / len(sized)] * len(sized) if equal else split_by_weight(weights, rho)
    sigmas = {share: compute_sigma(share, records) for share in set(shares)}
    return [Query((a,), size, records, sigmas[share]) for (a, size), share in zip(sized, shares, strict=True)]


def count_exactly(rows: Countable, queries: Sequence[Query], threads: int) -> Iterator[NDArray[np.int64]]:
    """Yield exact counts of each query, flat, in order.  Private until the run adds noise."""
    for counts in rows.counts([q.attributes for q in queries], threads=threads):
        yield counts.ravel()


def plan_marginals(
    weights: Mapping[Clique, float], domain: Domain, fine: Domain, rho: Fraction, records: int
) -> list[Query]:
    """Plan one query per clique at exactly rho_i = ``rho`` w_i / sum_j w_j; single attributes use the fine codes.

    weights: clique -> positive number, in the order of the queries; ``domain``: of the coarse codes.

    Privacy: all answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Each marginal has L2 sensitivity k (Theorem 6 for k = 1) and costs k^2 / (2 sigma_i^2) <= rho_i.  The rho_i sum to
    rho whatever stage 2 selected, so the bound holds for every outcome of the earlier stages (adaptive composition,
    Theorem 1).  One mechanism instance per clique.
    """
    cells = [(fine if len(c) == 1 else domain).cells(c) for c in weights]
    shares = split_by_weight(list(weights.values()), rho)
    return [Query(c, n, records, compute_sigma(r, records)) for c, n, r in zip(weights, cells, shares, strict=True)]


def count_marginals(
    rows: Countable, fine: Callable[[], Countable], queries: Sequence[Query], threads: int
) -> Iterator[NDArray[np.int64]]:
    """Yield exact counts of each query, flat, in order; larger cliques come before single attributes.

    ``rows``: coarse codes; ``fine``: returns the fine codes, called only if a single attribute is asked.  Private until
    the run adds noise.  Raises ValueError if a larger clique comes after a single attribute.
    """
    larger = [q for q in queries if len(q.attributes) > 1]
    single = list(queries[len(larger) :])
    if any(len(q.attributes) > 1 for q in single):
        raise ValueError("larger cliques must come before single attributes")
    yield from count_exactly(rows, larger, threads)
    if single:
        yield from count_exactly(fine(), single, threads)


def build_located_domain(counted: Sequence[CountedValues]) -> Domain:
    """Return the domain of located rows: a code for each counted value of an attribute, and one for all others."""
    return Domain.of({c.attribute: len(c.number) + 1 for c in counted})


def locate_rows(
    numbers: Iterable[pa.RecordBatch], plan: EncodingPlan, counted: Sequence[CountedValues]
) -> Iterator[pa.RecordBatch]:
    """Yield the counted value of every kept row, as codes of :func:`build_located_domain`.

    ``numbers``: the rows' lattice numbers, as *encode* stored them.  Each row is located by itself: adding or removing
    one person adds or removes at most ``unit.records`` rows, and changes no other.
    """
    schema = build_code_schema(build_located_domain(counted))
    codecs = {codec.attribute: codec for codec in plan.wide_celled}
    for batch in numbers:
        codes = []
        for c in counted:
            found = codecs[c.attribute].find_multiples(batch.column(c.attribute))
            place = np.searchsorted(c.number, found).clip(max=len(c.number) - 1)
            codes.append(np.where(c.number[place] == found, place, len(c.number)))
        yield build_code_batch(schema, codes)


def plan_values(counted: Sequence[CountedValues], rho: Fraction, records: int) -> list[Query]:
    """Return one query per attribute, each at ``rho`` / m: the counts of its values, and last of all other values.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Each is a histogram of disjoint cells with L2 sensitivity k (all k records may have one value) and costs at most rho
    / m.  The counted values follow from noisy one-ways, released before (adaptive composition, Theorem 1).  m mechanism
    instances add up.
    """
    each = rho / max(len(counted), 1)
    return [Query((c.attribute,), len(c.number) + 1, records, compute_sigma(each, records)) for c in counted]


@dataclass(frozen=True, eq=False)
class PlannedSet:
    """A set to measure: its attributes, the merge of each, and its weight in the budget of all sets."""

    attributes: Clique
    merges: tuple[Merge, ...]
    weight: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of merged codes."""
        return tuple(int(merge.max()) + 1 for merge in self.merges)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return int(np.prod(self.shape))


def compute_share(sizes: Sequence[tuple[int, float]], columns: int) -> Fraction:
    """Return the sets' share of the third stage's budget; ``sizes``: number of columns and weight of each set.

    The weighted pairs inside the sets compete with all pairs of ``columns`` columns; at most MOST_SHARE.
    """
    inside = sum((_count_pairs(n) * Fraction(repr(float(weight))) for n, weight in sizes), Fraction(0))
    return min(MOST_SHARE, inside / (inside + _count_pairs(columns))) if inside else Fraction(0)


def compute_least_share(sizes: Sequence[int]) -> Fraction:
    """Return the least share of named sets, in tables of any width; ``sizes``: number of columns of each set.

    The share is as for sets of weight 1 in a table of WIDE_COLUMNS columns, at most WIDE_SHARE.  By its part of all
    pairs, a set among 108 columns would get a share of .0002 and drown in noise.  Weights divide the share among the
    sets.
    """
    return min(WIDE_SHARE, compute_share([(n, 1.0) for n in sizes], WIDE_COLUMNS))


def _count_pairs(columns: int) -> Fraction:
    return Fraction(columns * (columns - 1), 2)


def plan_sets(
    named: Sequence[tuple[AbstractSet[str], float]],
    recode: Recode,
    in_order: AbstractSet[str],
    rho: Fraction,
    records: int,
    starts: Starts = NO_STARTS,
) -> list[PlannedSet]:
    """Return the sets with the merged codes that they are measured by.

    ``named``: attributes and weight of each set.  Attributes with one code are dropped, then sets with fewer than two
    attributes, unless no set would remain.  Sets with equal attributes are joined.  ``in_order``: the attributes whose
    codes are intervals.  ``rho``: the budget of all sets.  ``starts``: the initial merged codes of some sets.
    """
    domain = build_coarse_domain(recode)
    coarse = read_coarse_counts(recode, in_order)
    begun = {
        domain.ordered(a for a in by_attribute if domain.size(a) > 1): by_attribute for by_attribute in starts.values()
    }
    several = [(domain.ordered(a for a in columns if domain.size(a) > 1), weight) for columns, weight in named]
    weights: dict[Clique, float] = {}
    for clique, weight in several:
        if len(clique) > 1:
            weights[clique] = weights.get(clique, 0.0) + weight
    weights = weights or {domain.ordered(columns): weight for columns, weight in named}
    total, shares = estimate_total(recode), split_by_weight(list(weights.values()), rho)
    planned = []
    for (clique, weight), share in zip(weights.items(), shares, strict=True):
        cells = count_affordable_cells(total, compute_sigma(share, records))
        started = {a: replace(coarse[a], **start._asdict()) for a, start in begun.get(clique, {}).items()}
        planned.append(PlannedSet(clique, tuple(merge_codes({**coarse, **started}, clique, cells)), weight))
    return planned


def count_wanted_codes(sets: Sequence[PlannedSet], recode: Recode, binning: Binning) -> dict[str, tuple[int, ...]]:
    """Return how many codes each section of an attribute's bins needs for the merged codes of ``sets``.

    sets: planned on the codes of ``recode``, which are as fine as the one-ways allow; attributes without sections are
    left out.
    """
    wanted: dict[str, tuple[int, ...]] = {}
    for planned in sets:
        for a, merge in zip(planned.attributes, planned.merges, strict=True):
            r, bins = recode[a], binning[a]
            parts = [
                merge[r.coarse[r.kept & (bins.groups >= start) & (bins.groups < end)]] for start, end in bins.in_order
            ]
            before = wanted.get(a, (1,) * len(parts))
            wanted[a] = tuple(max(n, len(np.unique(part))) for n, part in zip(before, parts, strict=True))
    return {a: counts for a, counts in wanted.items() if counts}


def read_coarse_counts(recode: Recode, in_order: AbstractSet[str]) -> dict[str, CoarseCounts]:
    """Return the noisy counts of every attribute's codes; ``in_order``: the attributes whose codes are intervals."""
    one_ways = map_coarse_one_ways(recode)
    return {a: CoarseCounts(counts, a in in_order, variance) for a, (counts, variance) in one_ways.items()}


def plan_set_queries(sets: Sequence[PlannedSet], rho: Fraction, records: int) -> list[Query]:
    """Plan one query per set at exactly rho_i = ``rho`` w_i / sum_j w_j.

    Privacy: all answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    The merged codes follow from the spec and earlier releases.  A record is in one cell of each set, so each table has
    L2 sensitivity k and costs k^2 / (2 sigma_i^2) <= rho_i; the rho_i sum to rho (adaptive composition, Theorem 1).
    One mechanism instance per set.
    """
    shares = split_by_weight([s.weight for s in sets], rho)
    return [
        Query(s.attributes, s.cells, records, compute_sigma(share, records))
        for s, share in zip(sets, shares, strict=True)
    ]


def build_set_domain(sets: Sequence[PlannedSet]) -> Domain:
    """Return the domain of the rows in merged codes: one attribute for each attribute of each set."""
    return Domain.of(
        {
            name: size
            for number, planned in enumerate(sets)
            for name, size in zip(name_columns(number, planned), planned.shape, strict=True)
        }
    )


def name_columns(number: int, planned: PlannedSet) -> Clique:
    """Return the column names of the set ``number`` among rows in merged codes."""
    return tuple(f"{number}: {attribute}" for attribute in planned.attributes)


def merge_rows(batches: Iterable[pa.RecordBatch], sets: Sequence[PlannedSet]) -> Iterator[pa.RecordBatch]:
    """Yield merged code batches for coarse ones, row by row; a filtered value keeps one code beyond the last."""
    schema = build_code_schema(build_set_domain(sets), padded=True)
    columns = [(a, np.append(m, int(m.max()) + 1)) for s in sets for a, m in zip(s.attributes, s.merges, strict=True)]
    for batch in batches:
        yield build_code_batch(schema, (merge[np.asarray(batch.column(attribute))] for attribute, merge in columns))


def count_sets(rows: Countable, sets: Sequence[PlannedSet], threads: int) -> Iterator[NDArray[np.int64]]:
    """Yield exact counts of each set, flat; ``rows``: in merged codes.  Private until the run adds noise."""
    cliques = [name_columns(number, planned) for number, planned in enumerate(sets)]
    for counts in rows.counts(cliques, threads=threads):
        yield counts.ravel()


def build_set_marginals(
    sets: Sequence[PlannedSet], answers: Mapping[Clique, tuple[NDArray[np.float64], float]]
) -> list[Marginal]:
    """Return the measured sets; ``answers``: each set's attributes -> its noisy counts, flat, and their sigma."""
    marginals = []
    for planned in sets:
        counts, sigma = answers[planned.attributes]
        marginals.append(
            Marginal(planned.attributes, counts.astype(np.float64).reshape(planned.shape), sigma, planned.merges)
        )
    return marginals


def tabulate_merges(sets: Sequence[PlannedSet]) -> pa.Table:
    """Return the contract MERGES."""
    rows = [
        (number, attribute, coarse, merged, planned.weight)
        for number, planned in enumerate(sets)
        for attribute, merge in zip(planned.attributes, planned.merges, strict=True)
        for coarse, merged in enumerate(merge.tolist())
    ]
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 5, schema=MERGES.schema)


def read_merges(table: pa.Table) -> list[PlannedSet]:
    """Return the sets of a MERGES table, in order."""
    merges_by_set: dict[int, dict[str, list[int]]] = {}
    weights: dict[int, float] = {}
    for row in table.to_pylist():
        merges_by_set.setdefault(row["set"], {}).setdefault(row["attribute"], []).append(row["merged"])
        weights[row["set"]] = row["weight"]
    return [
        PlannedSet(tuple(merges), tuple(np.array(m, dtype=np.int64) for m in merges.values()), weights[number])
        for number, merges in merges_by_set.items()
    ]

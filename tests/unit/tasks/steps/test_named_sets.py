"""Named sets: shares of the budget, the counts against plain ones, and rows that follow them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Compression, Synthesis
from privsyn.data_contracts.receipts import Query
from privsyn.engine.request import Request
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.merged_codes import find_starts
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import measure_marginals
from privsyn.tasks.steps.compress_domain import compress_domain
from privsyn.tasks.steps.make_consistent import find_merge, make_consistent
from privsyn.tasks.steps.synthesize import synthesize
from tests.support.code_tables import make_recode
from tests.support.specs import make_spec

HALVES = np.arange(12) // 6
QUARTERS = np.arange(12) // 3


@pytest.mark.parametrize(
    ("sizes", "columns", "share"),
    [([], 5, Fraction(0)), ([(3, 10.0)], 3, Fraction(1, 2)), ([(3, 1.0)], 10, Fraction(3, 48))],
)
def test_the_share_of_sets_is_that_of_their_weighted_pairs(
    sizes: list[tuple[int, float]], columns: int, share: Fraction
) -> None:
    assert measure_marginals.compute_share(sizes, columns) == share


def test_sets_are_planned_by_their_noise_and_come_back_from_their_table() -> None:
    recode = {"a": make_recode([100.0] * 8), "b": make_recode([400.0, 400.0]), "c": make_recode([800.0])}
    named = [(frozenset("ab"), 10.0), (frozenset("abc"), 1.0)]
    sets = measure_marginals.plan_sets(named, recode, {"a"}, Fraction(1, 100), 1)
    assert [(s.attributes, s.weight) for s in sets] == [(("a", "b"), 11.0)]  # c has one code and tells nothing
    assert sets[0].cells > measure_marginals.plan_sets(named, recode, {"a"}, Fraction(1, 10_000), 1)[0].cells == 4
    again = measure_marginals.read_merges(measure_marginals.tabulate_merges(sets))
    assert [(s.attributes, s.weight, s.shape) for s in again] == [(s.attributes, s.weight, s.shape) for s in sets]
    assert [[m.tolist() for m in s.merges] for s in again] == [[m.tolist() for m in s.merges] for s in sets]


def test_a_pair_in_merged_codes_keeps_its_trend() -> None:
    """Many faint pairs say how strong trends are: one of merged codes is told from noise as one of plain codes is."""
    rng = np.random.default_rng(3)
    slope = np.outer(*[np.linspace(-1.2, 1.2, 4)] * 2)
    true, names = 250 * (1 + 0.25 * slope), [f"c{i}" for i in range(24)]
    pairs = list(zip(names[::2], names[1::2], strict=True))
    found = make_consistent(
        [Marginal((a,), np.full(12, 4_000 / 12)) for a in names],
        [np.full(12, 4.0)] * len(names),
        [Marginal(p, true + rng.normal(0, 90, (4, 4)), 90.0, (QUARTERS, QUARTERS)) for p in pairs],
        [90.0] * len(pairs),
        20,
        one_way_weight=10.0,
        shrink=True,
        pooled={a: np.ones(12, bool) for a in names},
        named_pairs=frozenset(pairs),
    )
    kept = [float((m.counts * slope).sum() / (true * slope).sum()) for m in found[len(names) :]]
    assert np.mean(kept) > 0.8


def test_a_merge_is_found_where_codes_are_parts_of_the_others() -> None:
    agrees, merge = find_merge(QUARTERS, HALVES)
    assert agrees and merge is not None and merge.tolist() == [0, 0, 1, 1]
    assert not find_merge(HALVES, QUARTERS)[0]
    assert find_merge(None, HALVES)[1] is HALVES


def parity(numbers: int, merge: np.ndarray, total: float) -> np.ndarray:
    """Counts of the parity of so many even columns, in halves of which the merged codes are parts."""
    size = int(merge.max()) + 1
    half = np.array([merge[HALVES == 1].min() <= code for code in range(size)])
    shape = (size,) * numbers
    odd = half[np.indices(shape)].sum(axis=0) % 2
    return np.stack([1 - odd, odd], axis=-1) * total / np.prod(shape)


def test_a_set_in_merged_codes_agrees_with_the_one_ways() -> None:
    rng = np.random.default_rng(1)
    one_ways = [Marginal((a,), np.full(12, 100.0)) for a in "ab"] + [Marginal(("y",), np.full(2, 600.0))]
    truth = parity(2, QUARTERS, 1200.0)
    noisy = truth + rng.normal(0, 5, truth.shape)
    found = make_consistent(
        one_ways,
        [np.full(m.counts.shape, 4.0) for m in one_ways],
        [Marginal(("a", "b", "y"), noisy, 5.0, (QUARTERS, QUARTERS, None))],
        [5.0],
        10,
        one_way_weight=10.0,
        shrink=True,
    )
    a, y, joint = found[0], found[2], found[3]
    assert joint.merges and joint.counts.min() >= 0
    assert joint.counts.sum(axis=(1, 2)) == pytest.approx(np.bincount(QUARTERS, weights=a.counts), abs=2)
    assert joint.counts.sum(axis=(0, 1)) == pytest.approx(y.counts, abs=2)
    assert np.abs(joint.counts - truth).sum() < 0.5 * np.abs(noisy - truth).sum()


@pytest.mark.parametrize("numbers", [2, 3])
def test_rows_follow_a_set_in_merged_codes_of_columns_that_are_independent_in_pairs(numbers: int) -> None:
    """y is the parity of columns: no pair tells anything, and rows that follow pairs have it right in one of two."""
    names = [f"x{i}" for i in range(numbers)]
    domain = Domain.of({**dict.fromkeys(names, 12), "y": 2})
    rows = 4_000
    marginals = [Marginal((a,), np.full(domain.size(a), rows / domain.size(a))) for a in domain.attributes]
    counts = parity(numbers, QUARTERS, rows)
    marginals.append(Marginal(domain.attributes, counts, 5.0, (*[QUARTERS] * numbers, None)))
    marginals.append(Marginal(("x0", "x1"), np.full((12, 12), rows / 144), 5.0))
    made = synthesize(marginals, domain, Synthesis(), rows, 1)
    odd = np.add.reduce([HALVES[made.column(a)] for a in names]) % 2
    assert (odd == made.column("y")).mean() > 0.98
    assert np.bincount(made.column("x0")) == pytest.approx(np.full(12, rows / 12), abs=12)
    again = synthesize(marginals, domain, Synthesis(), rows, 2)
    assert all((x == y).all() for x, y in zip(made.columns, again.columns, strict=True))


@pytest.mark.parametrize("columns", ["ab", "abc"])
def test_null_is_apart_from_values_in_named_sets(columns: str) -> None:
    """Of a column that is mostly null, two merged codes would be null with the larger values, and the smaller ones."""
    number = {"kind": "number", "min": 0, "max": 8, "bins": 8, "nullable": True}
    request = Request(make_spec(dict.fromkeys(columns, number), workload=[{"columns": list(columns)}]))
    groupings = {codec.attribute: (codec.groups, 9) for codec in request.encoding.codecs}
    starts = find_starts(request.spec, request.encoding, groupings)
    recode = {a: make_recode([20.0] * 8 + [2_000.0]) for a in columns}
    named = [(frozenset(columns), 1.0)]
    (planned,) = measure_marginals.plan_sets(named, recode, frozenset(columns), Fraction(1, 100), 1, starts)
    assert all(np.count_nonzero(merge == merge[-1]) == 1 for merge in planned.merges)


def test_columns_have_as_many_codes_as_the_largest_of_their_sets_wants() -> None:
    binning = {
        "a": AttributeBins(np.arange(9, dtype=np.int32), ((0, 8),), is_open=True),
        "b": AttributeBins(np.arange(8, dtype=np.int32), ((0, 8),), is_open=True),
        "c": AttributeBins(np.arange(2, dtype=np.int32)),
    }
    recode = {"a": make_recode([100.0] * 8 + [9_000.0]), "b": make_recode([100.0] * 8), "c": make_recode([400.0] * 2)}
    thirds, halves = np.array([0, 0, 0, 1, 1, 1, 2, 2, 3]), np.array([0, 0, 0, 0, 1, 1, 1, 1, 2])
    sets = [
        measure_marginals.PlannedSet(("a", "b"), (thirds, halves[:8]), 1.0),
        measure_marginals.PlannedSet(("a", "c"), (halves, np.arange(2)), 1.0),
    ]
    least = measure_marginals.count_wanted_codes(sets, recode, binning)
    assert least == {"a": (3,), "b": (2,)}
    queries = [Query((a,), len(r.estimate), 1, 200.0) for a, r in recode.items()]
    answers = [r.estimate.astype(np.int64) for r in recode.values()]
    compression = Compression(equal_mass=True, sigmas=0)
    few = compress_domain(answers, queries, binning, compression)
    more = compress_domain(answers, queries, binning, compression, {"a": (6,)})
    assert few["a"].size == 2 and more["a"].size == 7  # null has a code of its own
    assert few["b"].size == more["b"].size


def test_named_sets_have_a_share_in_a_table_of_any_width() -> None:
    assert (
        measure_marginals.compute_least_share([2])
        == Fraction(1, 46)
        > measure_marginals.compute_share([(2, 10.0)], 108)
    )
    assert measure_marginals.compute_least_share([2] * 20) == measure_marginals.WIDE_SHARE
    assert measure_marginals.compute_least_share([]) == 0


def test_counts_are_those_of_merged_codes_and_filtered_values_are_left_out() -> None:
    rng = np.random.default_rng(0)
    domain = Domain(("a", "b"), (12, 3))
    columns = rng.integers(0, 13, 500).astype(np.uint8), rng.integers(0, 4, 500).astype(np.uint8)
    rows = CodeTable(domain, columns, padded=True)
    sets = [measure_marginals.PlannedSet(("a", "b"), (QUARTERS, np.array([0, 1, 0])), 1.0)]
    merged = CodeTable.from_arrow(
        list(measure_marginals.merge_rows(rows.to_arrow().to_batches(), sets)),
        measure_marginals.build_set_domain(sets),
        padded=True,
    )
    (counts,) = measure_marginals.count_sets(merged, sets, 1)
    wanted = np.zeros((4, 2), dtype=np.int64)
    for a, b in zip(*columns, strict=True):
        if a < 12 and b < 3:
            wanted[QUARTERS[a], [0, 1, 0][b]] += 1
    assert counts.tolist() == wanted.ravel().tolist()

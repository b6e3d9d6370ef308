"""Bug class 5, wrong neighbour relation or sensitivity: brute force over all neighbours of small tables.

It does not see how rows become codes or which rows of a person are kept, nor counts of cells and of single values,
transitions, kept rows, persons without rows and itemsets, which have modules of their own: its tables are up to six
rows of two columns, in codes, and a person's rows are any that are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations, combinations_with_replacement, product
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, RowStream, release_steps
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.pair_departures import MOST_PAIRS, IndependentCounts, list_near_pairs
from privsyn.tasks.estimation.recode import recode_to_table
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.steps import compress_domain, measure_marginals, score_columns
from tests.support.examples import keep_first
from tests.support.specs import make_spec, mechanism_fields

DOMAIN = Domain(("a", "b"), (2, 3))
FIVE = Domain(tuple("abcde"), (2,) * 5)
ROWS = list(product(range(2), range(3)))


def table(rows: list[tuple[int, int]], domain: Domain = DOMAIN) -> CodeTable:
    columns = np.array(rows, dtype=np.uint8).reshape(-1, len(domain.attributes)).T
    return CodeTable(domain, tuple(np.ascontiguousarray(c) for c in columns), padded=True)


PUBLIC = CodeTable(DOMAIN, table(ROWS).columns)
"""Public rows: one of each kind."""


def answers(step: object, queries: list[Query], rows: list[tuple[int, int]]) -> list[np.ndarray]:
    return list(step.count_exactly(table(rows), queries, 1))  # type: ignore[attr-defined]


def worst(step: object, queries: list[Query], records: int, largest: int) -> list[float]:
    """Largest L2 change of each query over all tables up to ``largest`` rows and all ``records`` added rows."""
    change = [0.0] * len(queries)
    tables = [list(t) for n in range(largest + 1) for t in combinations_with_replacement(ROWS, n)]
    cached = {tuple(t): answers(step, queries, t) for t in tables}
    for rows in tables:
        if len(rows) + records > largest:
            continue
        for added in combinations_with_replacement(ROWS, records):
            more = cached[tuple(sorted([*rows, *added]))]
            for i, (x, y) in enumerate(zip(cached[tuple(rows)], more, strict=True)):
                change[i] = max(change[i], float(np.linalg.norm(x - y)))
    return change


@pytest.mark.parametrize("records", [1, 2])
def test_05_marginals(records: int) -> None:
    queries = measure_marginals.plan_one_ways(DOMAIN, Fraction(1), records)
    assert worst(measure_marginals, queries, records, 4) == [records, records]
    queries = measure_marginals.plan_marginals({("a", "b"): 1.0}, DOMAIN, DOMAIN, Fraction(1), records)
    assert worst(measure_marginals, queries, records, 4) == [records]
    assert {q.sensitivity for q in queries} == {records}


SETS = [measure_marginals.PlannedSet(("a", "b"), (np.array([0, 1]), np.array([0, 1, 1])), 1.0)]
"""A named set whose second attribute has two of its codes merged."""


def count_sets(rows: CodeTable, queries: list[Query], threads: int) -> Iterator[np.ndarray]:
    """The counts of SETS, from rows in coarse codes."""
    merged = measure_marginals.merge_rows(rows.to_arrow().to_batches(), SETS)
    domain = measure_marginals.build_set_domain(SETS)
    yield from measure_marginals.count_sets(CodeTable.from_arrow(list(merged), domain, padded=True), SETS, threads)


@pytest.mark.parametrize("records", [1, 2])
def test_05_named_sets(records: int) -> None:
    """The declared k is never exceeded, and is reached."""
    queries = measure_marginals.plan_set_queries(SETS, Fraction(1), records)
    assert worst(SimpleNamespace(count_exactly=count_sets), queries, records, 4) == [records]
    assert [(q.sensitivity, q.cells) for q in queries] == [(records, 4)]


def test_05_mutant_a_named_set_whose_rows_count_in_overlapping_cells() -> None:
    """Planted mutant: merged codes that overlap, so that a row is in two cells, at the price of one."""

    def exact(rows: CodeTable, queries: list[Query], threads: int) -> Iterator[np.ndarray]:
        fine = count(rows, ("a", "b"))
        yield np.stack([fine[:, :2].sum(axis=1), fine[:, 1:].sum(axis=1)], axis=1).ravel()

    (found,) = worst(
        SimpleNamespace(count_exactly=exact), measure_marginals.plan_set_queries(SETS, Fraction(1), 1), 1, 4
    )
    assert found > 1


def test_02_mutant_merged_codes_from_the_rows() -> None:
    """Planted mutant: codes merged by the exact counts, which move with the rows, so that one row moves many cells."""

    def exact(rows: CodeTable, queries: list[Query], threads: int) -> Iterator[np.ndarray]:
        heaviest = int(count(rows, ("b",)).argmax())
        merge = (np.arange(3) != heaviest).astype(np.int64)
        counts = np.zeros((2, 2), dtype=np.int64)
        np.add.at(counts, (slice(None), merge), count(rows, ("a", "b")))
        yield counts.ravel()

    (found,) = worst(
        SimpleNamespace(count_exactly=exact), measure_marginals.plan_set_queries(SETS, Fraction(1), 1), 1, 4
    )
    assert found > 1


THREE = Domain(("a", "b", "c"), (2, 2, 2))


def worst_triple(values: dict[str, np.ndarray], records: int) -> float:
    """Largest change of the score of (a, b, c) over tables of up to 2 rows and ``records`` like rows added."""
    rows, columns = list(product(range(3), repeat=3)), {a: a for a in "abc"}  # the third code is filtered
    queries = [Query(("a", "b", "c"), 1, records, 1.0)]

    def score(chosen: tuple[tuple[int, ...], ...]) -> int:
        (found,) = score_columns.count_triples(table(list(chosen), THREE), columns, values, queries, 1)
        return int(found[0])

    tables = [t for n in range(3) for t in combinations_with_replacement(rows, n)]
    added = [(row,) * records for row in rows]
    return max(abs(score(t) - score((*t, *more))) for t in tables for more in added)


@pytest.mark.slow
@pytest.mark.parametrize("records", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_05_triple_scores(records: int) -> None:
    """The declared k is never exceeded, whatever the values of parts, and is reached."""
    queries = score_columns.plan_triples([("a", "b", "c")], Fraction(1), records)
    even = {a: np.array([256, -256]) for a in "abc"}
    skew = {"a": np.array([256, -37]), "b": np.array([-255, 256]), "c": np.array([256, -190])}
    found = [worst_triple(values, records) for values in (even, skew)]
    assert max(found) == records == queries[0].sensitivity


@pytest.mark.slow
def test_05_mutant_values_of_parts_beyond_one() -> None:
    """Planted mutant: values of variance 1 in place of values within 1, at the same price."""
    assert worst_triple({a: np.array([512, -128]) for a in "abc"}, 1) > 1


@pytest.mark.parametrize("records", [1, 2])
def test_05_indif(records: int) -> None:
    """The declared 4 k is never exceeded, on every table of up to 6 rows and every added person."""
    queries = score_columns.plan_indif(DOMAIN, Fraction(1), records)
    (found,) = worst(SimpleNamespace(count_exactly=score_columns.count_indif), queries, records, 6)
    assert 0 < found <= queries[0].sensitivity == 4 * records


@pytest.mark.parametrize("records", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_05_scores_against_noisy_one_ways(records: int, seed: int) -> None:
    """The declared k is never exceeded, whatever the reference says, and is reached."""
    rng = np.random.default_rng(seed)
    shares = {a: rng.dirichlet(np.ones(size + 1)) for a, size in zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)}
    reference = IndependentCounts(shares, total=float(rng.uniform(0, 6)))
    queries = score_columns.plan_indif(DOMAIN, Fraction(1), records, score_columns.REFERENCE_SENSITIVITY)
    step = SimpleNamespace(count_exactly=partial(score_columns.count_indif, reference=reference))
    (found,) = worst(step, queries, records, 5)
    assert 0 < found <= queries[0].sensitivity == records


def test_05_mutant_a_reference_from_the_rows() -> None:
    """Planted mutant: sensitivity 1 with exact one-ways, which move with the rows; that is InDif's 4."""

    def exact(rows: CodeTable, queries: list[Query], threads: int) -> Iterator[np.ndarray]:
        counts = {a: count(rows, (a,), padded_result=True) for a in DOMAIN.attributes}
        shares = {a: c / max(c.sum(), 1) for a, c in counts.items()}
        yield from score_columns.count_indif(rows, queries, threads, IndependentCounts(shares, float(rows.rows)))

    queries = score_columns.plan_indif(DOMAIN, Fraction(1), 1, score_columns.REFERENCE_SENSITIVITY)
    (found,) = worst(SimpleNamespace(count_exactly=exact), queries, 1, 6)
    assert found > queries[0].sensitivity


def test_05_indif_under_adversarial_counts() -> None:
    """Large random tables: the exact floor never moves by more than 4, and comes near it."""
    rng = np.random.default_rng(0)
    largest = 0
    for _ in range(3_000):
        shape = rng.integers(2, 5, 2)
        counts = rng.integers(0, rng.integers(2, 3_000), shape) * (rng.random(shape) < 0.5)
        more = counts.copy()
        more[tuple(rng.integers(0, s) for s in shape)] += 1
        largest = max(largest, abs(score_columns.compute_indif(counts) - score_columns.compute_indif(more)))
    assert 2 <= largest <= 4


WIDE = {f"q{i}_{j}": {"kind": "boolean"} for i in range(31) for j in range(10)}
"""Columns of a table whose pairs are not all scored."""


def plan_scores(
    counts: Sequence[np.ndarray], columns: dict[str, dict[str, Any]] = WIDE, look: str = "indif_scores"
) -> list[Query]:
    """What a look asks of a table of these columns, WIDE, with these noisy counts, by column."""
    request = Request(make_spec(columns=columns))
    encoding, compression = request.encoding, request.spec.mechanism.compression
    queries = measure_marginals.plan_one_ways(encoding.domain, Fraction(1), 1)
    recode = compress_domain.compress_domain(list(counts), queries, encoding.binning, compression)
    released = recode_to_table(recode, encoding.labels())
    (step,) = (s for s in release_steps(build_steps(request)) if s.name == look)
    return step.plan(step.restrict(request), Inputs({"compress_domain.recode": lambda: released}), Fraction(1))


def test_02_the_scored_pairs_of_a_wide_table_follow_from_its_names() -> None:
    """Whatever was counted, the same pairs are scored, each at the same part of the budget, all of it at most."""
    rng = np.random.default_rng(0)
    one, other = (plan_scores(rng.integers(0, 2_000, (len(WIDE), 2))) for _ in range(2))
    assert [q.attributes for q in one] == [q.attributes for q in other] and len(one) == MOST_PAIRS < comb(len(WIDE), 2)
    assert {q.sensitivity for q in one} == {1} and sum_rho(one) <= 1 and len({q.sigma for q in one}) == 1


@pytest.mark.slow
def test_02_trends_of_a_wide_table_are_asked_of_pairs_that_are_scored_by_its_names() -> None:
    """Whatever was counted; one column is not ordered, and all sums together have the whole part of the budget."""
    number = {"kind": "integer", "min": 0, "max": 7}
    numbers = {a: number if i else WIDE[a] for i, a in enumerate(WIDE)}
    sizes, rng = Request(make_spec(columns=numbers)).encoding.domain.sizes, np.random.default_rng(0)
    asked, again, few = (
        plan_scores([rng.integers(most // 2, most, n) for n in sizes], numbers, "trend_scores")
        for most in (2_000, 2_000, 200)
    )
    scored, pairs = list_near_pairs(list(WIDE), {a: a for a in WIDE}), [q for q in asked if len(q.attributes) == 2]
    assert [q.attributes for q in pairs] == [p for p in scored if "q0_0" not in p] and len(pairs) < MOST_PAIRS
    assert [q.attributes for q in asked] == [q.attributes for q in again] and len(asked) == len(pairs) + len(WIDE) - 1
    assert len(WIDE) - 1 <= sum(len(q.attributes) == 2 for q in few) < len(pairs)  # the total was released before
    for queries in (asked, few):
        assert Fraction(999_999, 10**6) <= sum_rho(queries) <= 1


@pytest.mark.slow
def test_02_mutant_pairs_near_each_other_by_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: which pairs are scored follows from exact counts, so that one record shows in the receipts."""
    rows = np.random.default_rng(0).integers(0, 2, (200, len(WIDE)))
    one_more = np.vstack([rows, np.arange(len(WIDE)) % 2])
    asked = []
    for private in (rows, one_more):

        def choose(attributes: tuple[str, ...], *of: object, private: np.ndarray = private) -> list[tuple[str, ...]]:
            together, pairs = private.T @ private, list(combinations(range(len(attributes)), 2))
            ranked = sorted(pairs, key=lambda pair: -together[pair])[:MOST_PAIRS]
            return [(attributes[i], attributes[j]) for i, j in sorted(ranked)]

        monkeypatch.setattr("privsyn.engine.request.list_near_pairs", choose)
        asked.append([q.attributes for q in plan_scores(np.tile([300, 700], (len(WIDE), 1)))])
    assert asked[0] != asked[1]


def test_05_mutant_indif_at_the_price_of_a_marginal() -> None:
    """Planted mutant: InDif declared with the marginals' sensitivity."""
    queries = [Query(("a", "b"), 1, 1, 1.0)]
    (found,) = worst(SimpleNamespace(count_exactly=score_columns.count_indif), queries, 1, 6)
    assert found > queries[0].sensitivity


SCORES = {"a": np.array([-1, 1, 0]), "b": np.array([-8, 3, 8, 0])}
"""Scores of the codes of DOMAIN and of filtered values: signs, and ranks of at most 8."""


@pytest.mark.parametrize("records", [1, 2])
@pytest.mark.parametrize("scores", [{"a": SCORES["a"], "b": np.sign(SCORES["b"])}, {**SCORES, "a": 8 * SCORES["a"]}])
def test_05_trends(records: int, scores: dict[str, np.ndarray]) -> None:
    """The declared k s of a column and k s^2 of a pair are never exceeded, and are reached."""
    top = int(np.abs(scores["b"]).max())
    pairs = score_columns.list_pairs(["a", "b"], [("a", "b"), ("b", "c")])
    queries = score_columns.plan_trends(["a", "b"], top, Fraction(1), records, pairs)
    step = SimpleNamespace(count_exactly=partial(score_columns.count_trends, scores=scores))
    assert worst(step, queries, records, 5) == [q.sensitivity for q in queries]
    assert [q.sensitivity for q in queries] == [records * top, records * top, records * top**2]
    assert score_columns.get_top(queries) == top


def test_05_mutant_trends_of_ranks_at_the_price_of_signs() -> None:
    """Planted mutant: products of ranks of at most 8, declared as products of signs."""
    queries = score_columns.plan_trends(["a", "b"], 1, Fraction(1), 1)
    step = SimpleNamespace(count_exactly=partial(score_columns.count_trends, scores=SCORES))
    assert worst(step, queries, 1, 4) == [1, 8, 8]


def test_05_trends_asked_again() -> None:
    """Products of signs, within what is left of the measurement's budget, whatever the first look said."""
    signs = {a: np.sign(score) for a, score in SCORES.items()}
    step = SimpleNamespace(count_exactly=partial(score_columns.count_trends, scores=signs))
    first, rho = score_columns.plan_trends(["a", "b"], 1, Fraction(1, 10_000), 1), Fraction(1, 1_000)
    for total in (0.0, 1_000.0, 10_000.0, 1e9):
        again, left = score_columns.plan_again(first, {("a",): 1.0, ("b",): 2.0}, total, rho, 1)
        assert all(weight > 0 for weight in left.values())
        measured = measure_marginals.plan_marginals(left, DOMAIN, DOMAIN, rho - sum_rho(again), 1)
        assert rho * Fraction(999_999, 10**6) <= sum_rho([*measured, *again]) <= rho
        assert worst(step, again, 1, 4) == [q.sensitivity for q in again]


def test_05_mutant_trends_asked_again_beside_the_budget() -> None:
    """Planted mutant: the marginals have the whole budget as before, although trends are asked again."""
    first, rho = score_columns.plan_trends(["a", "b"], 1, Fraction(1, 10_000), 1), Fraction(1, 1_000)
    weights: dict[tuple[str, ...], float] = {("a",): 1.0, ("b",): 2.0}
    again, _ = score_columns.plan_again(first, weights, 1_000, rho, 1)
    assert sum_rho([*measure_marginals.plan_marginals(weights, DOMAIN, DOMAIN, rho, 1), *again]) > rho


def test_05_mutant_trends_about_the_middle_of_the_rows() -> None:
    """Planted mutant: signs by the exact median of the rows, which one more record moves for all of them."""

    def exact(rows: CodeTable, queries: list[Query], threads: int) -> Iterator[np.ndarray]:
        scores = dict(SCORES)
        middle = np.median(rows.column("b")) if rows.rows else 0
        scores["b"] = np.append(np.where(np.arange(3) > middle, 1, -1), 0)
        yield from score_columns.count_trends(rows, queries, threads, scores)

    queries = score_columns.plan_trends(["a", "b"], 1, Fraction(1), 1)
    assert max(worst(SimpleNamespace(count_exactly=exact), queries, 1, 5)) > 1


def test_06_noise_levels_price_what_is_declared() -> None:
    """Sigma recomputed from the receipts is the noise the stage's rho allows (bug class 6)."""
    for epsilon in (0.1, 1.0, 10.0):
        rho = Fraction(epsilon) / 7
        for plan in (
            measure_marginals.plan_one_ways(DOMAIN, rho, 2),
            measure_marginals.plan_one_ways(DOMAIN, rho, 2, equal=False),
            score_columns.plan_indif(DOMAIN, rho, 2),
            score_columns.plan_indif(DOMAIN, rho, 2, score_columns.REFERENCE_SENSITIVITY),
            score_columns.plan_indif(FIVE, rho, 2, scored_more={"a"}),
            measure_marginals.plan_marginals({("a", "b"): 0.1, ("a",): 0.7}, DOMAIN, DOMAIN, rho, 2),
            measure_marginals.plan_set_queries([*SETS, *SETS], rho, 2),
            score_columns.plan_triples([("a", "b", "c"), ("a", "b", "d")], rho, 2),
            score_columns.plan_trends(["a", "b"], 64, rho, 2),
        ):
            spent = sum(Fraction(q.sensitivity) ** 2 / (2 * Fraction(q.sigma) ** 2) for q in plan)
            assert rho * Fraction(999_999, 10**6) <= spent <= rho


def test_06_mutant_pairs_of_the_focus_beside_the_budget_of_all() -> None:
    """Planted mutant: the pairs of a focus have half of the budget, and all pairs have all of it as before."""
    rho = Fraction(1, 7)
    plan = score_columns.plan_indif(FIVE, rho, 1, scored_more={"a"})
    mutant = [*(q for q in plan if "a" in q.attributes), *score_columns.plan_indif(FIVE, rho, 1)[4:]]
    assert sum_rho(plan) <= rho < sum_rho(mutant)


@pytest.mark.parametrize("mechanism", keep_first(["privbayes", "aim", "prior", "mst"], 3))
@pytest.mark.parametrize("records", keep_first([2, 1]))
def test_05_looks_of_the_other_mechanisms(mechanism: str, records: int) -> None:
    """Every look as the mechanism declares it: on all neighbours of small tables no answer moves by more."""
    for name, queries, step in looks_of(mechanism, records):
        found = worst(step, queries, records, 4)
        assert {q.sensitivity for q in queries} == {records}, name
        assert max(found) == pytest.approx(records) if "scores" not in name else 0 < max(found) <= records
        assert all(change <= records for change in found), name


@pytest.mark.parametrize("mechanism", ["mst", "privbayes", "aim"])
def test_05_mutant_scores_of_the_other_mechanisms_against_the_rows(mechanism: str) -> None:
    """Planted mutant: the scores are the paper's InDif, at the price of a distance to the noisy one-ways."""
    ((_, queries, _),) = [look for look in looks_of(mechanism, 1) if look[0] == "indif_scores"]
    (found,) = worst(SimpleNamespace(count_exactly=score_columns.count_indif), queries, 1, 6)
    assert found > queries[0].sensitivity


def test_05_mutant_rows_so_far_scaled_to_the_private_number_of_rows() -> None:
    """Planted mutant of `aim`'s scores: the exact number of rows, which moves with a person, not the noisy one."""
    ((_, queries, _),) = [look for look in looks_of("aim", 1) if look[0] == "residual_scores_2"]
    made = CodeTable(DOMAIN, tuple(np.zeros(4, np.uint8) for _ in DOMAIN.attributes))

    def exact(rows: CodeTable, queries: list[Query], threads: int) -> Iterator[np.ndarray]:
        return score_columns.count_residuals(rows, made, float(rows.rows), queries, threads)

    (found,) = worst(SimpleNamespace(count_exactly=exact), queries, 1, 4)
    assert found > queries[0].sensitivity


def test_05_mutant_a_group_s_counts_have_one_record_of_a_person() -> None:
    """Planted mutant of `prior`: noise for one record, as if disjoint groups kept a person's records apart."""
    found = {name: (queries, worst(step, queries, 2, 4)) for name, queries, step in looks_of("prior", 2)}
    for name in ("measure_groups", "measure_in_groups"):
        queries, moved = found[name]
        mutants = [replace(q, sensitivity=1) for q in queries]
        assert all(m > q.sensitivity for m, q in zip(moved, mutants, strict=True))
        assert max(moved) > 2**0.5  # not even as of records in different groups


def looks_of(mechanism: str, records: int) -> Iterator[tuple[str, list[Query], SimpleNamespace]]:
    """Name, queries and counting of each look of a mechanism at a table of DOMAIN, its earlier answers fixed."""
    columns = {"a": {"kind": "boolean"}, "b": {"kind": "categorical", "values": [1, 2]}}  # and one code for others
    fields = mechanism_fields(mechanism, "b", **({"rounds": 2} if mechanism == "aim" else {}))
    spec = make_spec(columns, **fields, unit={"records_per_person": records})
    request = Request(spec, ("a", "b"), prior_rows=PUBLIC if spec.prior else None)
    tables: dict[str, pa.Table] = {}
    last = release_steps(build_steps(request))[-1].name
    for step in build_steps(request)[1:]:
        read: Any = {name: partial(tables.get, name) for name in step.inputs}
        inputs = step.lend(request, Inputs(read))
        if isinstance(step, ReleaseStep):
            queries = step.plan(request, inputs, step.rho(request))
            yield step.name, queries, SimpleNamespace(count_exactly=partial(_counted, step, request, inputs))
            noise = [np.arange(q.cells, dtype=np.int64) + 900 for q in queries]
            tables[f"{step.name}.noisy"] = noisy.tabulate_answers(noise)
            tables[f"{step.name}.receipts"] = noisy.tabulate_receipts(queries)
        elif step.kind is StepKind.POSTPROCESS and step.name != "make_consistent":
            assert step.run is not None
            for table, made in step.run(request, inputs, lambda d, t: None).items():
                whole = pa.Table.from_batches(made.batches, made.schema) if isinstance(made, RowStream) else made
                tables[f"{step.name}.{table}"] = whole
        if step.name == last:
            return


def _counted(
    step: ReleaseStep, request: Request, inputs: Inputs, rows: CodeTable, queries: list[Query], threads: int
) -> Iterator[np.ndarray]:
    inputs.countable = lambda *how, **more: rows  # type: ignore[method-assign]  # single columns are asked of fine codes
    return step.exact(request, inputs, rows, queries)

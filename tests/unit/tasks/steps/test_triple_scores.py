"""Scores of triples: by hand against rows, which triples are candidates, and which are measured."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import score_columns
from privsyn.tasks.steps.measure_marginals import build_set_domain, merge_rows, name_columns


def recode_of(counts: list[float]) -> AttributeRecode:
    size = len(counts)
    return AttributeRecode(
        np.arange(size, dtype=np.int32), np.ones(size, bool), np.ones(size), np.array(counts), np.ones(size)
    )


RECODE = {
    "a": recode_of([100.0, 100.0, 100.0, 100.0]),
    "b": recode_of([200.0, 200.0]),
    "c": recode_of([400.0]),
    "y": recode_of([300.0, 100.0]),
}
ORDERED = {"a"}


def test_parts_are_halves_and_their_values_have_no_mean() -> None:
    halves = score_columns.halve_attributes(RECODE, ORDERED)
    assert [m.tolist() for m in halves.merges] == [[0, 0, 1, 1], [0, 1], [0], [0, 1]]
    values = score_columns.compute_values(RECODE, halves)
    assert values["a"].tolist() == [256, -256] and values["y"].tolist() == [85, -256]
    assert max(int(np.abs(v).max()) for v in values.values()) <= score_columns.UNIT


def test_candidates_hold_a_focus_and_no_column_of_one_code() -> None:
    halves = score_columns.halve_attributes({**RECODE, "z": RECODE["b"]}, ORDERED)
    assert score_columns.list_triples(["y"], halves) == [("a", "b", "y"), ("a", "y", "z"), ("b", "y", "z")]
    many = score_columns.halve_attributes({str(i): RECODE["b"] for i in range(120)}, set())
    assert score_columns.list_triples(["0"], many) == []
    assert score_columns.plan_triples([], 1, 1) == []  # type: ignore[arg-type]


def test_scores_are_sums_of_products_over_rows_in_whole_records() -> None:
    rng = np.random.default_rng(0)
    domain = Domain.of({a: r.size for a, r in RECODE.items()})
    columns = tuple(rng.integers(0, r.size + 1, 300).astype(np.uint8) for r in RECODE.values())
    rows = CodeTable(domain, columns, padded=True)
    halves = score_columns.halve_attributes(RECODE, ORDERED)
    values = score_columns.compute_values(RECODE, halves)
    merged = list(merge_rows(rows.to_arrow().to_batches(), [halves]))
    in_parts = CodeTable.from_arrow(merged, build_set_domain([halves]), padded=True)
    names = dict(zip(halves.attributes, name_columns(0, halves), strict=True))
    query = Query(("a", "b", "y"), 1, 1, 1.0)
    (found,) = score_columns.count_triples(in_parts, names, values, [query], 1)
    by_hand = 0
    for a, b, _, y in zip(*columns, strict=True):
        if a < 4 and b < 2 and y < 2:
            by_hand += int(values["a"][a // 2] * values["b"][b] * values["y"][y])
    assert found.tolist() == [by_hand // score_columns.UNIT**3]


@pytest.mark.parametrize("score", [90.0, -90.0])
def test_triples_that_stand_out_are_measured_and_else_pairs_of_the_focus(score: float) -> None:
    queries = [Query(("a", "b", "y"), 1, 1, 20.0), Query(("a", "c", "y"), 1, 1, 20.0)]
    pairs = {("a", "b"): 99.0, ("a", "y"): 5.0, ("b", "y"): 7.0}

    def choose(scores: list[float]) -> list[tuple[str, ...]]:
        return score_columns.choose_sets(queries, scores, 400.0, ["y"], pairs, RECODE)

    assert choose([score, 10.0]) == [("a", "b", "y")]
    assert choose([score, 2 * score]) == [("a", "c", "y"), ("a", "b", "y")]
    assert choose([59.0, -59.0]) == [("b", "y"), ("a", "y")]  # three standard deviations are 60
    assert score_columns.choose_sets([], [], 400.0, ["y"], {}, RECODE) == [("a", "b")]

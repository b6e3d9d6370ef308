from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.step_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.kernels.streams import draw_systematically
from privsyn.tasks.steps.synthesize import synthesize
from privsyn.tasks.synthesis.shards import (
    ALL_LEFT,
    Leftovers,
    Shard,
    compute_open_part_rows,
    compute_part_rows,
    cut,
    iterate_shards,
    plan_shards,
)


def sizes(rows: int, most: int) -> list[int]:
    return [shard.rows for shard in plan_shards(rows, Synthesis(shard_rows=most))]


@pytest.mark.parametrize(
    ("rows", "most", "expected"),
    [(0, 5, [0]), (5, 5, [5]), (6, 5, [3, 3]), (11, 5, [3, 4, 4]), (3, 1, [1, 1, 1]), (10, 100, [10])],
)
def test_the_fewest_shards_of_equal_size(rows: int, most: int, expected: list[int]) -> None:
    assert sizes(rows, most) == expected


def test_one_shard_is_the_table_itself() -> None:
    (only,) = plan_shards(7, Synthesis(seed=3))
    assert (only.own_seed, only.offset(0.25), compute_part_rows([only])) == (3, 0.25, ())
    seeds = [shard.own_seed for shard in plan_shards(1_000, Synthesis(seed=3, shard_rows=1))]
    assert len(set(seeds)) == 1_000
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_shards_round_to_what_the_whole_table_rounds_to() -> None:
    """Fractions far below one record a cell and shard: each on its own would lose or invent most of them."""
    weights = np.random.default_rng(0).random(400)
    found = plan_shards(1_000, Synthesis(shard_rows=100))
    parts = [draw_systematically(weights, s.rows, s.offset(0.37)) for s in found]
    total = np.sum(parts, axis=0)
    np.testing.assert_array_equal(total, draw_systematically(weights, 1_000, (10 * 0.37) % 1.0))
    assert np.abs(total - weights / weights.sum() * 1_000).max() < 1


def batches(rows: list[int]) -> list[pa.RecordBatch]:
    edges = [0, *itertools.accumulate(rows)]
    return [pa.record_batch({"x": pa.array(range(a, b), pa.int64())}) for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize("given", [[10], [1] * 10, [4, 6], [3, 0, 7], [2, 1, 0, 7]])
@pytest.mark.parametrize("wanted", [[10], [5, 5], [3, 3, 4], [1] * 10])
def test_a_stream_is_cut_where_parts_end(given: list[int], wanted: list[int]) -> None:
    found = list(cut(batches(given), wanted))
    rows = [[] for _ in wanted]  # type: ignore[var-annotated]
    for part, batch in found:
        rows[part] += batch["x"].to_pylist()
    assert [len(r) for r in rows] == wanted
    assert list(itertools.chain(*rows)) == list(range(10))
    held = [(s.number, sum(b.num_rows for b in p)) for s, p in iterate_shards(batches(given), [
        Shard(0, i, len(wanted), n) for i, n in enumerate(wanted)
    ])]  # fmt: skip
    assert held == list(enumerate(wanted))


def test_a_table_of_no_rows_is_one_empty_shard() -> None:
    assert [(s.number, part) for s, part in iterate_shards([], plan_shards(0, Synthesis()))] == [(0, [])]


@pytest.mark.parametrize(("given", "word"), [([11], "more"), ([9], "fewer"), ([5], "fewer"), ([], "fewer")])
def test_rows_are_not_lost_or_made_up(given: list[int], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        list(cut(batches(given), [5, 5]))


@pytest.mark.parametrize(
    ("given", "parts"), [([11], [5, 6]), ([5, 6], [5, 6]), ([9], [5, 4]), ([3], [3, 0]), ([], [0, 0])]
)
def test_the_last_part_may_have_what_is_left(given: list[int], parts: list[int]) -> None:
    assert compute_open_part_rows(plan_shards(10, Synthesis(shard_rows=5))) == (5, ALL_LEFT)
    found = [0, 0]
    for part, batch in cut(batches(given), (5, ALL_LEFT)):
        found[part] += batch.num_rows
    assert found == parts


DOMAIN = Domain.of({"a": 12, "b": 10, "c": 8})


def targets() -> list[Marginal]:
    rng = np.random.default_rng(5)
    table = CodeTable(DOMAIN, tuple((rng.random(20_000) ** 2 * s).astype(np.uint8) for s in DOMAIN.sizes))
    cliques = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "c")]
    return [Marginal(c, count(table, c).astype(float)) for c in cliques]


def in_shards_of(most: int, *, carried: bool = True, threads: int = 1, seed: int = 2) -> list[np.ndarray]:
    settings, left, parts = Synthesis(shard_rows=most, seed=seed), Leftovers(), []
    for shard in plan_shards(20_000, settings):
        table = synthesize(targets(), DOMAIN, settings, shard.rows, threads, None, shard, left if carried else None)
        parts.append(table.columns)
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def error(columns: list[np.ndarray]) -> float:
    made = CodeTable(DOMAIN, tuple(columns))
    larger = targets()[3:]
    return float(np.mean([np.abs(count(made, m.attributes) - m.counts).sum() / 20_000 for m in larger]))


def test_ten_shards_fit_the_marginals_nearly_as_well_as_one_table() -> None:
    """What a shard leaves over is asked of the next one; without that they fit much worse.  Means over eight seeds."""
    whole, ten, alone = np.mean(
        [
            [
                error(in_shards_of(n, carried=carried, seed=seed))
                for n, carried in ((20_000, True), (2_000, True), (2_000, False))
            ]
            for seed in range(8)
        ],
        axis=0,
    )
    assert ten < 2 * whole
    assert alone > 3 * ten


def test_shards_are_the_same_on_any_number_of_threads() -> None:
    for one, two in zip(in_shards_of(5_000, threads=1), in_shards_of(5_000, threads=2), strict=True):
        np.testing.assert_array_equal(one, two)


def test_one_shard_changes_nothing() -> None:
    plain = synthesize(targets(), DOMAIN, Synthesis(seed=2), 20_000, 1)
    for one, other in zip(plain.columns, in_shards_of(20_000), strict=True):
        np.testing.assert_array_equal(one, other)

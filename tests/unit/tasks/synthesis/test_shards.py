"""Shards of a table, and streams that are cut where parts end and read ahead."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.blocks import ALL_LEFT, cut_batches, read_ahead
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.kernels.streams import draw_systematically
from privsyn.tasks.steps.synthesize import refine_shard, synthesize
from privsyn.tasks.synthesis.shards import (
    Residuals,
    Shard,
    add_residuals,
    compute_open_part_rows,
    iterate_shards,
    measure_residuals,
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
    found = list(cut_batches(batches(given), wanted))
    rows = [[] for _ in wanted]  # type: ignore[var-annotated]
    for part, batch in found:
        rows[part] += batch["x"].to_pylist()
    assert [len(r) for r in rows] == wanted
    assert list(itertools.chain(*rows)) == list(range(10))
    held = [(s.number, sum(b.num_rows for b in p)) for s, p in iterate_shards(batches(given), [
        Shard(0, i, len(wanted), n) for i, n in enumerate(wanted)
    ])]  # fmt: skip
    assert held == list(enumerate(wanted))


@pytest.mark.parametrize(("given", "word"), [([11], "more"), ([9], "fewer"), ([5], "fewer"), ([], "fewer")])
def test_rows_are_not_lost_or_made_up(given: list[int], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        list(cut_batches(batches(given), [5, 5]))


@pytest.mark.parametrize(
    ("given", "parts"), [([11], [5, 6]), ([5, 6], [5, 6]), ([9], [5, 4]), ([3], [3, 0]), ([], [0, 0])]
)
def test_the_last_part_may_have_what_is_left(given: list[int], parts: list[int]) -> None:
    assert compute_open_part_rows(plan_shards(10, Synthesis(shard_rows=5))) == (5, ALL_LEFT)
    found = [0, 0]
    for part, batch in cut_batches(batches(given), (5, ALL_LEFT)):
        found[part] += batch.num_rows
    assert found == parts


DOMAIN = Domain.of({"a": 12, "b": 10, "c": 8})


def targets() -> list[Marginal]:
    rng = np.random.default_rng(5)
    table = CodeTable(DOMAIN, tuple((rng.random(20_000) ** 2 * s).astype(np.uint8) for s in DOMAIN.sizes))
    cliques = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "c")]
    return [Marginal(c, count(table, c).astype(float)) for c in cliques]


def in_shards_of(most: int, *, together: bool = True, threads: int = 1, seed: int = 2) -> list[np.ndarray]:
    """The columns of a table in shards, each made by itself and, ``together``, refined until the last."""
    settings, parts, lacking = Synthesis(shard_rows=most, seed=seed), [], []
    wanted = plan_shards(20_000, settings)
    for shard in wanted:
        own: Residuals = {}
        parts.append(synthesize(targets(), DOMAIN, settings, shard.rows, threads, None, shard, own))
        lacking.append(own)
    left = add_residuals(lacking)
    for i, shard in enumerate(wanted if together and len(wanted) > 1 else ()):
        parts[i], left = refine_shard(parts[i], targets(), settings, shard, left, threads)
    return [np.concatenate(columns) for columns in zip(*(part.columns for part in parts), strict=True)]


def error(columns: list[np.ndarray]) -> float:
    made = CodeTable(DOMAIN, tuple(columns))
    larger = targets()[3:]
    return float(np.mean([np.abs(count(made, m.attributes) - m.counts).sum() / 20_000 for m in larger]))


@pytest.mark.slow
def test_ten_shards_fit_the_marginals_nearly_as_well_as_one_table() -> None:
    """What all lack is asked of one after another; without that they fit much worse.  Means over eight seeds."""
    whole, ten, alone = np.mean(
        [
            [
                error(in_shards_of(n, together=together, seed=seed))
                for n, together in ((20_000, True), (2_000, True), (2_000, False))
            ]
            for seed in range(8)
        ],
        axis=0,
    )
    assert ten < 2.5 * whole  # targets without noise: one table of few rows has nearly none to move
    assert alone > 2.5 * ten


def test_what_shards_lack_is_what_their_counts_say() -> None:
    """The residuals are those of the rows, before they are refined and after: nothing is lost on the way."""
    settings, lacking, parts = Synthesis(shard_rows=5_000, seed=4), [], []
    wanted = plan_shards(20_000, settings)
    for shard in wanted:
        own: Residuals = {}
        parts.append(synthesize(targets(), DOMAIN, settings, shard.rows, 1, None, shard, own))
        lacking.append(own)

    def count_all_parts() -> np.ndarray:
        return np.concatenate([sum(count(part, m.attributes) for part in parts).ravel() for m in targets()])

    before, left = count_all_parts(), add_residuals(lacking)
    wanted_rows = before + left[0]
    for i, shard in enumerate(wanted):
        parts[i], left = refine_shard(parts[i], targets(), settings, shard, left, 1)
    np.testing.assert_array_equal(count_all_parts() + left[0], wanted_rows)
    assert np.abs(wanted_rows - np.concatenate([m.counts.ravel() for m in targets()])).max() <= 1
    assert measure_residuals(left) < measure_residuals(add_residuals(lacking))


def test_the_next_item_is_made_while_one_is_used() -> None:
    made = threading.Event()

    def numbers() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    stream = read_ahead(numbers(), 2)
    assert next(stream) == 1
    assert made.wait(10)
    assert list(stream) == [2]


@pytest.mark.parametrize("threads", [1, 2])
def test_items_come_in_order_and_an_error_in_its_place(threads: int) -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)
        raise ValueError("the sixth")

    found = []
    with pytest.raises(ValueError, match="the sixth"):
        for number in read_ahead(numbers(), threads):
            found.append(number)
    assert found == list(range(5))


def test_on_one_thread_nothing_is_made_ahead() -> None:
    asked = []
    stream = read_ahead((asked.append(i) or i for i in range(3)), 1)
    assert next(stream) == 0
    assert asked == [0]


def test_a_stream_that_is_left_early_ends_its_thread() -> None:
    before = threading.active_count()
    stream = read_ahead(iter(range(100)), 2)
    assert next(stream) == 0
    stream.close()
    assert threading.active_count() == before

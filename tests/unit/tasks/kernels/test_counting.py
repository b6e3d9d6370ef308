"""Counting against np.histogramdd, whole and block by block, on awkward tables and any number of threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.tables import BATCH_COLUMNS, BATCH_ROWS, build_code_schema, choose_batch_rows
from privsyn.tasks.kernels import blocks
from privsyn.tasks.kernels.blocks import BlockwiseRows, block_rows, iterate_passes
from privsyn.tasks.kernels.counting import CodeTable, choose_thread_count, count
from tests.support.code_tables import draw_table

DOMAIN = Domain.of({"a": 3, "one": 1, "b": 7, "wide": 300, "c": 2, "huge": 70_000})


def referee(table: CodeTable, clique: tuple[str, ...]) -> np.ndarray:
    shape = table.shape(clique)
    codes = np.stack([table.column(a).astype(float) for a in clique], axis=1)
    counts, _ = np.histogramdd(codes, bins=shape, range=[(-0.5, s - 0.5) for s in shape])
    return counts.astype(np.int64)


@pytest.mark.parametrize("rows", [0, 1, 3, 5_003])
def test_every_marginal_up_to_three_attributes_equals_histogramdd(rows: int) -> None:
    table = draw_table(DOMAIN, rows)
    for k in (1, 2, 3):
        for clique in itertools.combinations(("a", "one", "b", "wide", "c"), k):
            counts = count(table, clique)
            assert counts.dtype == np.int64
            assert counts.shape == DOMAIN.shape(clique)
            np.testing.assert_array_equal(counts, referee(table, clique))


def test_uint32_codes_and_attributes_in_another_order() -> None:
    table = draw_table(DOMAIN, 4_001)
    assert table.column("huge").dtype == np.uint32
    expected = np.bincount(table.column("huge").astype(int) * 3 + table.column("a"), minlength=210_000)
    np.testing.assert_array_equal(count(table, ("huge", "a")).ravel(), expected)
    np.testing.assert_array_equal(count(table, ("a", "huge")), count(table, ("huge", "a")).T)
    np.testing.assert_array_equal(count(table, ("huge",)), np.bincount(table.column("huge"), minlength=70_000))


@pytest.mark.parametrize("clique", [("a",), ("a", "b"), ("a", "b", "c"), ()])
def test_padded_tables_leave_filtered_values_out_unless_asked(clique: tuple[str, ...]) -> None:
    table = draw_table(DOMAIN, 3_000, padded=True)
    full = count(table, clique, padded_result=True)
    assert full.sum() == 3_000
    if clique:
        np.testing.assert_array_equal(full, referee(table, clique))
        assert count(table, clique).sum() < 3_000
    np.testing.assert_array_equal(count(table, clique), full[tuple(slice(0, -1) for _ in clique)])


@pytest.mark.parametrize("padded_result", [False, True])
def test_count_all_gives_the_same_integers_in_order_on_any_number_of_threads(padded_result: bool) -> None:
    table = draw_table(DOMAIN, 2_000, padded=True)
    names = ("a", "one", "b", "wide", "c")
    cliques = [*itertools.combinations(names, 1), *itertools.combinations(names, 2), *itertools.combinations(names, 3)]
    cliques = cliques * 9
    for threads in (0, 1, 2, 5):
        results = list(table.counts(cliques, threads=threads, padded_result=padded_result))
        assert len(results) == len(cliques)
        for clique, counts in zip(cliques, results, strict=True):
            np.testing.assert_array_equal(counts, count(table, clique, padded_result=padded_result))


def test_count_all_reads_ahead_only_a_little() -> None:
    table = draw_table(DOMAIN, 10)
    asked = 0

    def cliques():  # type: ignore[no-untyped-def]
        nonlocal asked
        for _ in range(10_000):
            asked += 1
            yield ("a", "b")

    results = table.counts(cliques(), threads=2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert asked <= 16 * 6


def test_a_marginal_whose_keys_do_not_fit_is_refused() -> None:
    domain = Domain.of({"x": 70_000, "y": 70_000})
    table = CodeTable(domain, (np.zeros(1, np.uint32), np.zeros(1, np.uint32)))
    with pytest.raises(ValueError, match="4,900,000,000 cells"):
        count(table, ("x", "y"))


def test_negative_threads_are_refused() -> None:
    assert choose_thread_count(3) == 3
    assert choose_thread_count(0) >= 1
    with pytest.raises(ValueError, match="-1"):
        choose_thread_count(-1)


def test_arrow_round_trip_shares_memory() -> None:
    table = draw_table(DOMAIN, 100)
    arrow = table.to_arrow()
    assert arrow.schema == build_code_schema(DOMAIN)
    back = CodeTable.from_arrow(arrow, DOMAIN)
    for ours, theirs in zip(table.columns, back.columns, strict=True):
        assert np.shares_memory(ours, theirs)
    halves = CodeTable.from_arrow([*arrow.slice(0, 40).to_batches(), *arrow.slice(40).to_batches()], DOMAIN)
    np.testing.assert_array_equal(halves.column("wide"), table.column("wide"))
    assert CodeTable.from_arrow([], DOMAIN).rows == 0
    padded = draw_table(DOMAIN, 50, padded=True)
    assert padded.to_arrow().schema == build_code_schema(DOMAIN, padded=True)
    assert CodeTable.from_arrow(padded.to_arrow(), DOMAIN, padded=True).padded


def test_tables_that_the_kernels_could_not_trust_are_refused() -> None:
    domain = Domain.of({"a": 3, "b": 2})
    ones, codes = np.ones(4, np.uint8), np.array([0, 1, 2, 3], np.uint8)
    with pytest.raises(ValueError, match="a: the code 3 is outside"):
        CodeTable(domain, (codes, ones))
    CodeTable(domain, (codes, ones), padded=True)
    with pytest.raises(ValueError, match="b: columns must be contiguous and of one length"):
        CodeTable(domain, (ones, ones[:2]))
    with pytest.raises(ValueError, match="contiguous"):
        CodeTable(domain, (ones[::2], ones[::2]))
    with pytest.raises(ValueError, match="uint8"):
        CodeTable(domain, (ones.astype(np.int64), ones))
    with pytest.raises(ValueError, match="1 columns for 2"):
        CodeTable(domain, (ones,))
    with pytest.raises(ValueError, match="in order"):
        CodeTable.from_arrow(pa.table({"b": ones, "a": ones}), domain)
    with pytest.raises(ValueError, match="must not have nulls"):
        CodeTable.from_arrow(pa.table({"a": pa.array([1, None], pa.uint8()), "b": ones[:2]}), domain)


def pieces(table: CodeTable, columns: Domain, cuts: list[int]) -> Iterator[CodeTable]:
    """The columns asked for, cut at the given rows; a cut named twice gives a block of no rows."""
    for first, stop in itertools.pairwise([0, *cuts, table.rows]):
        yield CodeTable(columns, tuple(table.column(a)[first:stop] for a in columns.attributes), table.padded)


def in_pieces(table: CodeTable, cuts: list[int], asked: list[tuple[str, ...]] | None = None) -> BlockwiseRows:
    def read(columns: Domain, threads: int) -> Iterator[CodeTable]:
        if asked is not None:
            asked.append(columns.attributes)
        return pieces(table, columns, cuts)

    return BlockwiseRows(table.domain, table.padded, table.rows, read)


@pytest.mark.parametrize("cuts", [[], [1], [17, 17, 1_000], list(range(100, 3_000, 100))], ids=["one", "1", "0", "30"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_give_the_integers_of_the_whole_table(cuts: list[int], padded: bool, threads: int) -> None:
    table = draw_table(DOMAIN, 3_001, padded=padded)
    cliques = [(), ("a",), ("b", "a"), ("wide", "b"), ("a", "b", "c"), ("one", "wide", "c", "b")]
    for padded_result in (False, True):
        ours = list(in_pieces(table, cuts).counts(cliques, threads=threads, padded_result=padded_result))
        for clique, counts in zip(cliques, ours, strict=True):
            expected = count(table, clique, padded_result=padded_result)
            assert counts.shape == expected.shape
            np.testing.assert_array_equal(counts, expected)


def test_a_pass_is_bounded_in_cells_and_reads_only_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PASS_CELLS", 26)
    cliques = [("a",), ("b", "a"), ("c",), ("wide",), ("a", "c")]
    groups = list(iterate_passes(DOMAIN, cliques))
    assert groups == [[("a",), ("b", "a"), ("c",)], [("wide",)], [("a", "c")]]
    table, asked = draw_table(DOMAIN, 500), list[tuple[str, ...]]()
    for clique, counts in zip(cliques, in_pieces(table, [99], asked).counts(cliques), strict=True):
        np.testing.assert_array_equal(counts, count(table, clique))
    assert asked == [("a", "b", "c"), ("wide",), ("a", "c")]


@pytest.mark.parametrize("fault", ["lost", "twice"])
def test_a_block_that_is_lost_or_counted_twice_is_found(fault: str) -> None:
    table = draw_table(DOMAIN, 1_000)

    def read(columns: Domain, threads: int) -> Iterator[CodeTable]:
        found = list(pieces(table, columns, [400, 900]))
        return iter(found[:-1] if fault == "lost" else [*found, found[1]])

    with pytest.raises(RuntimeError, match="a, b do not add up"):
        list(BlockwiseRows(DOMAIN, False, 1_000, read).counts([("a", "b")]))


def test_a_marginal_whose_keys_do_not_fit_is_refused_before_anything_is_read() -> None:
    domain = Domain.of({"x": 70_000, "y": 70_000})
    rows = BlockwiseRows(domain, False, 1, lambda columns, threads: pytest.fail("it was read"))
    with pytest.raises(ValueError, match="4,900,000,000 cells"):
        list(rows.counts([("x", "y")]))


def test_a_block_takes_bounded_bytes_whatever_the_width() -> None:
    narrow, wide = Domain.of({"a": 2}), Domain.of({f"a{i}": 300 for i in range(5_000)})
    assert block_rows(narrow) == blocks.BLOCK_BYTES
    assert block_rows(wide) == blocks.BLOCK_BYTES // 10_000
    assert block_rows(Domain.of({"a": 256}), padded=True) == blocks.BLOCK_BYTES // 2


@pytest.mark.parametrize("columns", [BATCH_COLUMNS + 1, 1_000, 5_000])
def test_a_batch_of_a_wide_table_has_as_many_values(columns: int) -> None:
    assert BATCH_ROWS * BATCH_COLUMNS - columns < choose_batch_rows(columns) * columns <= BATCH_ROWS * BATCH_COLUMNS


def test_a_batch_has_never_few_rows() -> None:
    assert choose_batch_rows(1_000_000) == 1_024

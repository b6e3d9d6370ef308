from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.kernels import blocks
from privsyn.tasks.kernels.blocks import BlockwiseRows, block_rows, iterate_passes
from privsyn.tasks.kernels.counting import CodeTable, count

DOMAIN = Domain.of({"a": 3, "b": 5, "one": 1, "wide": 300, "c": 2})


def random_table(rows: int, *, padded: bool = False, seed: int = 0) -> CodeTable:
    rng = np.random.default_rng(seed)
    sizes = [s + padded for s in DOMAIN.sizes]
    return CodeTable(DOMAIN, tuple(rng.integers(s, size=rows).astype(choose_code_dtype(s)) for s in sizes), padded)


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
    table = random_table(3_001, padded=padded)
    cliques = [(), ("a",), ("b", "a"), ("wide", "b"), ("a", "b", "c"), ("one", "wide", "c", "b")]
    for padded_result in (False, True):
        ours = list(in_pieces(table, cuts).counts(cliques, threads=threads, padded_result=padded_result))
        for clique, counts in zip(cliques, ours, strict=True):
            expected = count(table, clique, padded_result=padded_result)
            assert counts.shape == expected.shape
            np.testing.assert_array_equal(counts, expected)


def test_a_table_of_no_rows_counts_zeros() -> None:
    assert [c.sum() for c in in_pieces(random_table(0), []).counts([("a",), (), ("b", "wide")])] == [0, 0, 0]


def test_a_pass_is_bounded_in_cells_and_reads_only_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PASS_CELLS", 20)
    cliques = [("a",), ("b", "a"), ("c",), ("wide",), ("a", "c")]
    groups = list(iterate_passes(DOMAIN, cliques))
    assert groups == [[("a",), ("b", "a"), ("c",)], [("wide",)], [("a", "c")]]
    table, asked = random_table(500), list[tuple[str, ...]]()
    for clique, counts in zip(cliques, in_pieces(table, [99], asked).counts(cliques), strict=True):
        np.testing.assert_array_equal(counts, count(table, clique))
    assert asked == [("a", "b", "c"), ("wide",), ("a", "c")]


@pytest.mark.parametrize("fault", ["lost", "twice"])
def test_a_block_that_is_lost_or_counted_twice_is_found(fault: str) -> None:
    table = random_table(1_000)

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

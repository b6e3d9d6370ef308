"""Partitions of stored tables, and the engine that works on them in this process."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.counting import engine as module
from privsyn.counting.engine import LocalEngine, add_up, count_at_once, count_partition, list_partitions, read_blocks
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.storage.table_files import StoredTable
from privsyn.tasks.kernels.counting import CodeTable, count

DOMAIN = Domain.of({"a": 3, "b": 5, "wide": 300, "c": 2})
PAIRS = [*itertools.combinations(DOMAIN.attributes, 2), ("a", "b", "c"), ("b",), ()]


def stored(folder: Path, files: dict[str, list[int]], *, padded: bool = False) -> tuple[StoredTable, CodeTable]:
    """Files with row groups of the given rows, and the same rows in memory."""
    rng = np.random.default_rng(0)
    tables: list[pa.Table] = []
    for name, groups in files.items():
        with pq.ParquetWriter(folder / name, CodeTable.from_arrow([], DOMAIN, padded=padded).to_arrow().schema) as out:
            for rows in groups:
                sizes = [s + padded for s in DOMAIN.sizes]
                columns = tuple(rng.integers(s, size=rows).astype(choose_code_dtype(s)) for s in sizes)
                tables.append(CodeTable(DOMAIN, columns, padded).to_arrow())
                out.write_table(tables[-1])
    paths = tuple(folder / name for name in files)
    return StoredTable(paths, lambda: iter(())), CodeTable.from_arrow(
        pa.concat_tables(tables).combine_chunks(), DOMAIN, padded=padded
    )


FILES = {"one.parquet": [100, 1, 250, 3], "none.parquet": [], "two.parquet": [77]}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_local_engine_counts_what_is_in_memory(tmp_path: Path, padded: bool, threads: int) -> None:
    table, whole = stored(tmp_path, FILES, padded=padded)
    rows = LocalEngine().rows(table, DOMAIN, padded=padded)
    assert table.num_rows == whole.rows == 431
    for padded_result in (False, True):
        for clique, ours in zip(PAIRS, rows.counts(PAIRS, threads=threads, padded_result=padded_result), strict=True):
            np.testing.assert_array_equal(ours, count(whole, clique, padded_result=padded_result))


@pytest.mark.parametrize("most", [1, 2, 100, 101, 354, 10**9])
def test_every_row_group_is_in_one_partition(tmp_path: Path, most: int) -> None:
    table, whole = stored(tmp_path, FILES)
    parts = list_partitions(table.files, most)
    assert sum(p.rows for p in parts) == 431
    groups = [(p.path, g) for p in parts for g in range(p.first, p.stop)]
    assert groups == [*((str(tmp_path / "one.parquet"), g) for g in range(4)), (str(tmp_path / "two.parquet"), 0)]
    assert all(p.rows <= most or p.stop - p.first == 1 for p in parts)
    total = add_up([count_partition(p, DOMAIN, PAIRS) for p in parts])
    for clique, counts in zip(PAIRS, total, strict=True):
        np.testing.assert_array_equal(counts.reshape(DOMAIN.shape(clique)), count(whole, clique))


def test_adding_up_changes_no_part() -> None:
    parts = [[np.array([1, 2])], [np.array([3, 4])]]
    assert [c.tolist() for c in add_up(parts)] == [[4, 6]]
    assert parts[0][0].tolist() == [1, 2]


def test_blocks_are_of_bounded_size_and_of_the_columns_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "block_rows", lambda domain, padded: 60)
    table, whole = stored(tmp_path, {"one.parquet": [100, 1, 250, 3]})
    (part,) = list_partitions(table.files, 10**9)
    blocks = list(read_blocks(part, Domain.of({"c": 2, "a": 3})))
    assert all(0 < block.rows <= 60 for block in blocks)
    for name in ("c", "a"):
        np.testing.assert_array_equal(np.concatenate([b.column(name) for b in blocks]), whole.column(name))


def test_a_code_outside_the_domain_is_refused(tmp_path: Path) -> None:
    table, _ = stored(tmp_path, FILES, padded=True)
    with pytest.raises(ValueError, match="outside the domain"):
        list(LocalEngine().rows(table, DOMAIN).counts(PAIRS))


@pytest.mark.parametrize(
    ("tasks", "at_once", "expected"), [(3, 2, [2, 2, 1]), (4, 2, [2, 2, 2, 2]), (6, 4, [4, 4, 4, 4, 2, 2]), (0, 1, [])]
)
def test_the_last_parts_have_the_threads_of_those_that_are_missing(
    tasks: int, at_once: int, expected: list[int]
) -> None:
    assert count_at_once(tasks, at_once) == expected

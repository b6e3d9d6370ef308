"""Bug class 1: a column that is said not to be measured, and whose private values show all the same.

It does not see an unmeasured column of linked rows, linked tables and itemsets, nor the other mechanisms: its releases
have the default looks and at most two rows of a person.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources import file_source
from privsyn.tasks.codecs import encode_rows
from privsyn.tasks.codecs.encoding_plan import UnmeasuredColumn
from privsyn.tasks.privacy.noise import SeededNoise
from privsyn.tasks.steps import encode
from tests.support.releases import run
from tests.support.specs import COLUMNS, make_spec, people

Release = Callable[[pa.Table], dict[str, bytes]]
PERSONS = {"person_id": "caseid", "max_records": 2}


def spec_of(data: str) -> ReleaseSpec:
    """A spec that does not measure two columns, of a table whose persons have up to two records."""
    unmeasured = {name: {**COLUMNS[name], "measured": False} for name in ("region", "income")}
    columns = {**COLUMNS, **unmeasured, "seen": {"kind": "drop"}}
    return make_spec(columns, data=data, unit=PERSONS, formats=["parquet", "csv"], synthesis={"sweeps": 2})


def neighbours() -> list[pa.Table]:
    """Tables that differ in these two columns only: other values, values outside the domain, nulls, another type."""
    table = people(300)
    persons = pa.array([f"case-{i // 3}" for i in range(300)])
    table = table.set_column(table.column_names.index("caseid"), "caseid", persons)
    others = {
        "region": [pa.array([None, "nowhere", "east"] * 100), pa.array(np.arange(300.0))],
        "income": [pa.array(np.linspace(-9e9, 9e9, 300)), pa.array([b"\xff"] * 300, pa.binary())],
    }
    found = [table]
    for i in range(2):
        changed = table
        for name, arrays in others.items():
            changed = changed.set_column(changed.column_names.index(name), name, arrays[i])
        found.append(changed)
    return found


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Releases a table with the same seeded noise, in a place of its own; gives every file but for the run's name."""
    number = iter(range(9))

    def made(table: pa.Table) -> dict[str, bytes]:
        place = tmp_path / str(next(number))
        place.mkdir()
        monkeypatch.setenv("PRIVSYN_OUT", str(place / "out"))
        monkeypatch.setenv("PRIVSYN_LEDGER", str(place / "ledger.sqlite"))
        pq.write_table(table, place / "people.parquet")
        done = run(spec_of(str(place / "people.parquet")), noise=SeededNoise(7))
        files = {p.relative_to(done.released).as_posix(): p for p in Path(done.released).rglob("*") if p.is_file()}
        return {
            name: without_history(name, path.read_bytes().replace(done.run.encode(), b"RUN"))
            for name, path in files.items()
        }

    return made


def without_history(name: str, content: bytes) -> bytes:
    """The file without the ledger's last line, whose hash has a time in it, and without hashes of files."""
    if name not in ("certificate.json", "manifest.json"):
        return content
    return json.dumps({k: v for k, v in json.loads(content).items() if k not in ("ledger", "files")}).encode()


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> set[str]:
    """The files that are not the same, or not there."""
    assert {"synthetic.parquet", "certificate.json", "manifest.json", "README.md"} <= one.keys()
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def test_01_private_values_of_an_unmeasured_column_change_nothing_released(release: Release) -> None:
    first, *others = (release(table) for table in neighbours())
    assert [differing(first, other) for other in others] == [set(), set()]


def test_01_mutant_values_drawn_from_the_private_column(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the values come as often as in the private table, a table's own shape without noise."""
    tables, place = neighbours()[:2], [0]

    def by_rows(self: UnmeasuredColumn, rows: int, rng: np.random.Generator) -> pa.Array:
        drawn = original(self, rows, rng)
        if self.column != "region":
            return drawn
        listed = [v for v in tables[place[0]]["region"].to_pylist() if v in ("north", "south", "east")]
        return pa.array(rng.choice(listed, size=rows))

    original = UnmeasuredColumn.draw
    monkeypatch.setattr(UnmeasuredColumn, "draw", by_rows)
    found = []
    for place[0], table in enumerate(tables):
        found.append(release(table))
    assert differing(*found) == {"synthetic.parquet", "synthetic.csv"}


def test_01_mutant_rows_left_out_by_the_private_column(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the column is read, and rows whose value the spec does not list are not counted."""

    def known_only(batch: pa.RecordBatch, *rest: Any) -> pa.RecordBatch:
        listed = pc.is_in(batch["region"], value_set=pa.array(["north", "south", "east"]))
        return original(batch.filter(listed), *rest)

    original = encode.encode_batch
    monkeypatch.setattr(file_source, "list_columns_to_read", lambda columns, spec, where: tuple(columns))
    for module in (encode, encode_rows):
        monkeypatch.setattr(module, "encode_batch", known_only)
    monkeypatch.setattr(encode, "find_kept_rows", lambda *_: np.ones(300, bool))
    found = [release(table) for table in neighbours()[:2]]
    assert "marginals/one_way.parquet" in differing(*found)


def test_08_it_is_asked_nothing_and_pays_nothing(release: Release) -> None:
    """No receipt names it: every query is of other columns."""
    files = release(neighbours()[0])
    receipts = [pq.read_table(pa.BufferReader(files[name])) for name in files if name.endswith("_receipts.parquet")]
    assert len(receipts) == 3
    assert {name for table in receipts for names in table["attributes"].to_pylist() for name in names} == {
        "age",
        "happy",
    }

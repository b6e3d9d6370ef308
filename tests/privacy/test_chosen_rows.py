"""Bug class 23, with rows that somebody chose: no two tables are made that have one fingerprint.

A fingerprint decides which noise belongs to a table and under which names its people have a budget.  Who can write rows
into a database, and read this program's code, must not be able to keep it while they change the table.

It does not see fingerprints of files and of tables in memory, which are HMACs of their bytes, nor which of several rows
of a person is kept, for which the referee (audit/referee.py) is.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import duckdb
import pytest

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.sources import row_digest
from privsyn.sources.open_source import open_source
from privsyn.storage.store import Store
from tests.support.specs import make_spec

_MASK = (1 << 64) - 1
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(z: int) -> int:
    """The finaliser of splitmix64, with which rows were hashed without a key."""
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def unmix(z: int) -> int:
    """Its inverse."""
    z ^= (z >> 31) ^ (z >> 62)
    z = (z * pow(_SECOND, -1, 1 << 64)) & _MASK
    z ^= (z >> 27) ^ (z >> 54)
    z = (z * pow(_FIRST, -1, 1 << 64)) & _MASK
    return z ^ (z >> 30) ^ (z >> 60)


def hash_row(value: int, seed: int) -> int:
    return mix(mix(mix((value + _GAMMA) & _MASK) ^ seed))


def find_value(hashed: int, seed: int) -> int:
    return (unmix(unmix(unmix(hashed)) ^ seed) - _GAMMA) & _MASK


def choose_tables(name: str) -> tuple[list[int], list[int]]:
    """Two tables of two other rows each, of one column, whose hashes without a key have one sum."""
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    total = (hash_row(20, seed) + hash_row(30, seed)) & _MASK
    other = find_value((total - hash_row(41, seed)) & _MASK, seed)
    return [20, 30], [41, other - (1 << 64) if other >> 63 else other]


def save(path: Path, ages: list[int]) -> str:
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE people (age BIGINT)")
        database.executemany("INSERT INTO people VALUES (?)", [(age,) for age in ages])
    return f"duckdb:///{path}?table=people"


@pytest.fixture
def spec() -> ReleaseSpec:
    return make_spec({"age": {"kind": "number", "min": 0, "max": 100, "bins": 10}})


def fingerprint(folder: Path, ages: list[int], spec: ReleaseSpec, root: str = "private") -> str:
    place = save(folder / f"{len(list(folder.glob('*.duckdb')))}.duckdb", ages)
    return open_source(place, spec).fingerprint(Store(folder / root, folder / f"released-{root}"))


def test_23_chosen_rows_do_not_keep_the_fingerprint(tmp_path: Path, spec: ReleaseSpec) -> None:
    one, other = choose_tables("age")
    assert unmix(mix(12345)) == 12345 and one != other
    assert fingerprint(tmp_path, one, spec) != fingerprint(tmp_path, other, spec)
    assert fingerprint(tmp_path, one, spec) == fingerprint(tmp_path, one[::-1], spec)


def test_23_mutant_a_sum_of_hashes_without_a_key(
    tmp_path: Path, spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted mutant: each row's hash is one of 64 bits that everybody can compute."""
    seed = int.from_bytes(hashlib.blake2b(b"age", digest_size=8).digest(), "little")

    def hash_rows(_digest: object, columns: list[object]) -> list[bytes]:
        values = columns[0].to_pylist()  # type: ignore[attr-defined]
        return [hash_row(value, seed).to_bytes(8, "little") for value in values]

    def sum_hashes(hashes: bytes) -> int:
        return sum(int.from_bytes(hashes[i : i + 8], "little") for i in range(0, len(hashes), 8)) & _MASK

    monkeypatch.setattr(row_digest.RowDigest, "_hash_rows", hash_rows)
    monkeypatch.setattr(row_digest, "_sum_hashes", sum_hashes)
    one, other = choose_tables("age")
    assert fingerprint(tmp_path, one, spec) == fingerprint(tmp_path, other, spec)


def test_23_two_private_folders_digest_by_other_keys(tmp_path: Path, spec: ReleaseSpec) -> None:
    one, other = (Store(tmp_path / name, tmp_path / f"released-{name}") for name in ("one", "other"))
    source = open_source(save(tmp_path / "people.duckdb", [20, 30]), spec)
    source.check_rows()  # before any store is known
    first, second = source.fingerprint(one), source.fingerprint(other)
    assert first != second and one.derive_key("rows of a table") != other.derive_key("rows of a table")
    assert source.fingerprint(one) == first
    source.check_rows()
    source.close()
    list(source.batches())  # held to the rows of the first pass, by the key of the last one


@pytest.mark.parametrize("keyed", [False, True])
def test_23_a_pass_is_held_to_the_first_one_also_where_the_key_came_later(
    tmp_path: Path, spec: ReleaseSpec, keyed: bool
) -> None:
    place = save(tmp_path / "people.duckdb", [20, 30])
    source = open_source(place, spec)
    source.check_rows()
    source.close()
    with duckdb.connect(str(tmp_path / "people.duckdb")) as database:
        database.execute("UPDATE people SET age = 31 WHERE age = 30")
    with pytest.raises(Exception, match="changed while it was read"):
        source.fingerprint(Store(tmp_path / "private", tmp_path / "released")) if keyed else list(source.batches())

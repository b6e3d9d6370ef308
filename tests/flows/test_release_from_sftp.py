"""A release of a table on a server by SFTP: that of the same file here, from a server that is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import RequestError
from privsyn.sources.open_source import open_source
from privsyn.storage.store import Store
from tests.flows.test_release_from_databases import read_released, release
from tests.support.releases import QUICK, spent
from tests.support.sftp_server import Server, serve_files
from tests.support.specs import make_spec, people

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "served").mkdir()
    with serve_files(tmp_path / "served", tmp_path / "home") as found:
        yield found


def test_equal_rows_make_an_equal_release_from_a_server(server: Server, save: Any) -> None:
    table = people(2_000)
    file = save(table, "people.parquet")
    (server.folder / "people.parquet").write_bytes(Path(file).read_bytes())
    of_file = release(make_spec(data=file, dataset="file", **QUICK))
    spec = make_spec(data=server.url("people.parquet"), dataset="server", **QUICK)
    with pytest.raises(RequestError, match="was released as 'file'"):
        release(spec)
    of_server = release(spec, new_dataset="the same rows, compared")
    assert len(of_server.drawn) == 3
    assert read_released(of_file) == read_released(of_server)
    texts = "".join(f.read_text(errors="replace") for f in Path(of_server.released).rglob("*") if f.is_file())
    assert "sftp" not in texts and "127.0.0.1" not in texts


def test_a_file_on_a_server_is_the_same_table_as_here(server: Server, save: Any, tmp_path: Path) -> None:
    file = save(people(500), "people.parquet")
    (server.folder / "other_name.parquet").write_bytes(Path(file).read_bytes())
    store = Store(tmp_path / "p", tmp_path / "r")
    here, there = (open_source(place, make_spec()) for place in (file, server.url("other_name.parquet")))
    assert here.fingerprint(store) == there.fingerprint(store)


def test_a_folder_of_csv_files_is_read_in_the_order_of_names(server: Server) -> None:
    table = people(900)
    (server.folder / "parts").mkdir()
    for number, start in enumerate((0, 400)):
        pacsv.write_csv(table.slice(start, 500 if start else 400), server.folder / "parts" / f"{number}.csv")
    source = open_source(server.url("parts"), make_spec())
    assert pa.Table.from_batches(list(source.batches())).num_rows == 900


def test_a_file_that_changes_ends_the_run_and_spends_nothing(server: Server) -> None:
    path = server.folder / "people.parquet"
    pq.write_table(people(700), path)
    source = open_source(server.url("people.parquet"), make_spec())
    before = path.stat()
    pq.write_table(people(700, seed=1), path)
    os.utime(path, (before.st_atime, before.st_mtime + 5))
    with pytest.raises(RequestError, match="changed while it was read"):
        source.check_rows()


@pytest.mark.parametrize("fault", ["unknown server", "other server", "no key", "no file", "lost connection"])
def test_faults_are_one_sentence_and_cost_nothing(server: Server, tmp_path: Path, fault: str) -> None:
    pq.write_table(people(4_000), server.folder / "people.parquet")
    spec = make_spec(data=server.url("people.parquet"), dataset="people", **QUICK)
    known = tmp_path / "home" / ".ssh" / "known_hosts"
    expected = "is refused to this user by the store"
    if fault == "unknown server":
        known.unlink()
    elif fault == "other server":
        import paramiko

        name, kind, _ = known.read_text().split()
        known.write_text(f"{name} {kind} {paramiko.ECDSAKey.generate().get_base64()}\n")
    elif fault == "no key":
        (tmp_path / "home" / ".ssh" / "id_ecdsa").unlink()
    elif fault == "no file":
        (server.folder / "people.parquet").unlink()
        expected = "there is no object or folder 'people.parquet'"
    else:
        server.reads_left, expected = 3, "broke off; no budget is lost"
    with pytest.raises(RequestError, match=expected) as error:
        release(spec)
    assert str(tmp_path) not in str(error.value)
    assert spent() == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sftp://steward:hunter2@host/people.csv", "holds a password"),
        ("sftp:///people.csv", "names no server"),
        ("sftp://host/people.csv?table=x", "has the option 'table'"),
    ],
)
def test_bad_urls_are_refused(url: str, said: str) -> None:
    with pytest.raises(RequestError, match=said) as error:
        open_source(url, make_spec())
    assert "hunter2" not in str(error.value)

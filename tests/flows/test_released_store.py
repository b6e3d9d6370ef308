"""Released folders in an object store: there whole or not at all, and read there by who has no folder here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.extras.stores import released_store
from privsyn.extras.stores.released_store import copy_released, fetch_released
from privsyn.publish.folder import ReleaseSummary, add_formats
from tests.support.commands import privsyn as command
from tests.support.kept import Kept
from tests.support.object_stores import Bucket, serve_bucket
from tests.support.releases import few, release_in_process, spent
from tests.support.specs import people

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with serve_bucket() as store:
        yield store


@pytest.fixture
def made(kept: Kept, places: Path, monkeypatch: pytest.MonkeyPatch) -> ReleaseSummary:
    """A release that no setting sends to a store, the same for every test that asks for it."""
    data = kept.begin(monkeypatch) / "people.parquet"
    pq.write_table(people(400), data)
    return kept.once(lambda: release_in_process(few(str(data)), Settings()))  # type: ignore[no-any-return]


@pytest.fixture
def place(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A folder of the bucket for released folders, which the settings name."""
    url = f"s3://{bucket.name}/{tmp_path.name}"
    monkeypatch.setenv("PRIVSYN_RELEASED_STORE", url)
    return url


def list_names(bucket: Bucket, url: str) -> set[str]:
    top = url.partition(f"{bucket.name}/")[2]
    return {key.removeprefix(f"{top}/") for key in bucket.list_keys(top)}


def list_folder(folder: str) -> set[str]:
    return {str(f.relative_to(folder)) for f in Path(folder).rglob("*") if f.is_file()}


def test_a_release_is_in_the_store_and_its_receiver_reads_it_there(bucket: Bucket, place: str, save: Any) -> None:
    made = release_in_process(few(save(people(400))), Settings())
    url = f"{place}/{made.run}"
    assert list_names(bucket, url) == list_folder(made.released)
    here, there = privsyn.open_release(made.released), privsyn.open_release(url)
    assert there.run == here.run and there.table.equals(here.table) and there.folder != here.folder
    assert there.certificate == here.certificate and there.count().equals(here.count())
    asked = command("query", url, "age")
    assert asked.exit_code == 0, asked.output


def test_the_manifest_is_written_last_and_a_further_run_completes_the_copy(
    bucket: Bucket, place: str, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, write, written = few(save(people(400))), released_store._write, []

    def failing(filesystem: Any, path: str) -> Any:
        written.append(path)
        if len(written) == 4:
            raise OSError("AWS Error NETWORK_CONNECTION to http://user:secret@host")
        return write(filesystem, path)

    monkeypatch.setattr(released_store, "_write", failing)
    with pytest.raises(PrivsynError, match=r"could not be copied: .* does not answer, or broke off") as caught:
        release_in_process(spec, Settings())
    assert "secret" not in str(caught.value) and caught.value.__context__ is None
    paid = spent()
    (folder,) = Settings().released_root.iterdir()
    url = f"{place}/{folder.name}"
    assert paid > 0 and (folder / "manifest.json").is_file()
    assert 0 < len(list_names(bucket, url)) < len(list_folder(str(folder)))
    with pytest.raises(RequestError, match=r"there is no release at s3://.*no manifest\.json, which is written last"):
        privsyn.open_release(url)
    monkeypatch.setattr(released_store, "_write", write)
    assert release_in_process(spec, Settings()).drawn == () and spent() == paid
    assert list_names(bucket, url) == list_folder(str(folder))
    assert not copy_released(folder, place, "publish.database").written


@pytest.mark.slow
def test_a_folder_that_changes_is_replaced_with_its_manifest_last(
    bucket: Bucket, place: str, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = release_in_process(few(save(people(400))), Settings())
    url, write, without = f"{place}/{made.run}", released_store._write, []

    def watching(filesystem: Any, path: str) -> Any:
        without.append("manifest.json" not in list_names(bucket, url))
        return write(filesystem, path)

    monkeypatch.setattr(released_store, "_write", watching)
    bucket.write_bytes(f"{url.partition(bucket.name + '/')[2]}/left-over.csv", b"x")
    add_formats(made.run, ["csv"], Settings())
    assert without and all(without)
    assert list_names(bucket, url) == list_folder(made.released) and "left-over.csv" not in list_names(bucket, url)


def test_a_changed_or_foreign_file_is_refused(bucket: Bucket, made: ReleaseSummary, place: str) -> None:
    url = f"{place}/{made.run}"
    assert copy_released(Path(made.released), place, "publish.database").written
    top = url.partition(f"{bucket.name}/")[2]
    bucket.write_bytes(f"{top}/synthetic.parquet", b"changed")
    with pytest.raises(RequestError, match=r"synthetic\.parquet of .* is missing or was changed"):
        privsyn.open_release(url)
    manifest = json.loads((Path(made.released) / "manifest.json").read_text())
    manifest["files"]["../outside.txt"] = next(iter(manifest["files"].values()))
    bucket.write_bytes(f"{top}/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(RequestError, match="names a file that no release has"):
        fetch_released(url, "query.release")
    with pytest.raises(RequestError, match="there is no release at s3://private/none"):
        privsyn.open_release("s3://private/none")


def test_publish_copies_a_release_into_a_store(bucket: Bucket, made: ReleaseSummary, places: Path) -> None:
    place = f"s3://{bucket.name}/published"
    for said in ("Published", "Nothing to do: it already is"):
        done = command("publish", made.run, place)
        assert done.exit_code == 0 and f"{said} {place}/{made.run}" in done.output
    assert list_names(bucket, f"{place}/{made.run}") == list_folder(made.released)
    done = command("publish", f"{place}/{made.run}", f"duckdb:///{places}/a.duckdb")
    assert done.exit_code == 0, done.output


def test_wrong_places_are_refused_before_anything_is_spent(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = few(save(people(300)))
    for url in ("s3://me:hunter2@bucket/released", "https://host/released", "s3://bucket/?key=hunter2"):
        monkeypatch.setenv("PRIVSYN_RELEASED_STORE", url)
        with pytest.raises(RequestError) as caught:
            release_in_process(spec, Settings())
        assert caught.value.field == "settings.released_store" and "hunter2" not in str(caught.value) and spent() == 0
    monkeypatch.delenv("PRIVSYN_RELEASED_STORE")
    monkeypatch.setenv("PRIVSYN_OUT", "s3://bucket/released")
    with pytest.raises(RequestError, match="is in an object store, but releases are made in a local folder"):
        release_in_process(spec, Settings())

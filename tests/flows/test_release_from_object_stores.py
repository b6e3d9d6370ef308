"""Object stores: tables that are read from them, and released folders that are copied to them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import privsyn
from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.places import DataUrl
from privsyn.base.settings import Settings
from privsyn.extras.stores import released_store
from privsyn.extras.stores.released_store import copy_released, fetch_released
from privsyn.publish.folder import ReleaseSummary, add_formats
from privsyn.sources.file_source import FileSource
from privsyn.sources.open_source import list_table_columns, open_source
from privsyn.specs.draft import draft
from privsyn.storage.store import Store
from tests.flows.test_release_from_databases import read_released, release
from tests.support.commands import privsyn as command
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.object_stores import CREDENTIALS, Bucket, serve_bucket
from tests.support.releases import QUICK, few, release_in_process, spent
from tests.support.specs import make_spec, people

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with serve_bucket() as store:
        yield store


def test_equal_rows_make_an_equal_release_from_objects(bucket: Bucket, save: Any, tmp_path: Path) -> None:
    persons = {"unit": {"person_id": "caseid", "max_records": 2}}
    doubled = pa.concat_tables([people(600), people(300, seed=1)])
    others = people(500, seed=2)
    bucket.write(others.slice(300), "parts/b.parquet")
    bucket.write(others.slice(0, 300), "parts/a.parquet")
    bucket.write_bytes("parts/_SUCCESS", b"")
    cases = [(others, f"s3://{bucket.name}/parts/", {}), (doubled, bucket.write(doubled, "twice.parquet"), persons)]
    for number, (rows, url, unit) in enumerate(cases):
        of_file = release(make_spec(data=save(rows, f"{number}.parquet"), dataset=f"file-{number}", **unit, **QUICK))
        of_store = release(make_spec(data=url, dataset=f"store-{number}", **unit, **QUICK))
        assert len(of_file.drawn) == len(of_store.drawn) == 3
        assert read_released(of_file) == read_released(of_store)
    texts = "".join(f.read_text(errors="replace") for f in Path(of_store.released).rglob("*") if f.is_file())
    assert "s3://" not in texts
    note = json.loads((Path(of_store.private) / "run.json").read_text())
    assert note["data"] == note["files"][0] == f"s3://{bucket.name}/twice.parquet"
    kept = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert kept and not any(
        secret.encode() in f.read_bytes() for f in kept for secret in list(CREDENTIALS.values())[:2]
    )


def test_csv_objects_are_read_as_csv_files(bucket: Bucket, tmp_path: Path) -> None:
    table = people(3_000)
    pacsv.write_csv(table, tmp_path / "people.csv")
    content = (tmp_path / "people.csv").read_bytes()
    (tmp_path / "other.csv").write_bytes(content.replace(b",", b";"))
    places = [
        (bucket.write_bytes("people.csv", content), {}),
        (bucket.write_bytes("people.csv.gz", gzip.compress(content)), {}),
        (bucket.write_bytes("semicolons.csv", content.replace(b",", b";")), {"csv": {"delimiter": ";"}}),
        (bucket.write_bytes("lines.csv", content), {"csv": {"line_breaks": True}}),
    ]
    here = pa.Table.from_batches(list(open_source(str(tmp_path / "people.csv"), make_spec()).batches()))
    for url, options in places:
        spec = make_spec(**options)
        assert list_table_columns(url, spec) == tuple(table.column_names)
        assert pa.Table.from_batches(list(open_source(url, spec).batches())).equals(here)
    text = draft(places[0][0], look=True)
    assert f'\ndata: "{places[0][0]}"\n' in text and "\ndataset: people  #" in text


@pytest.mark.slow
def test_a_store_is_told_that_a_table_was_released_before(bucket: Bucket) -> None:
    table = people(400)
    url = bucket.write(table, "again.parquet")
    release(few(url))
    paid = spent()
    assert release(few(url)).drawn == () and spent() == paid > 0
    bucket.write(table, "again.parquet")  # the same bytes
    assert release(few(url)).drawn == () and spent() == paid
    spec = few(url)
    store = Store(Settings().private_root, Settings().released_root, "people")
    first = open_source(url, spec).fingerprint(store)
    assert open_source(bucket.write(table, "moved.parquet"), spec).fingerprint(store) == first
    bucket.write(table.slice(1), "again.parquet")
    assert open_source(url, spec).fingerprint(store) != first


@pytest.mark.parametrize("when", keep_first(["within", "before", "after"]))
def test_an_object_that_changes_is_refused_and_costs_nothing(
    bucket: Bucket, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = people(3_000)
    url = bucket.write(table, f"{when}.parquet", row_group_size=500)
    stream, passes = FileSource._stream, [0]

    def change() -> None:
        bucket.write(table.take(list(range(2_999, -1, -1))), f"{when}.parquet", row_group_size=400)

    def changing(self: FileSource, *how: Any) -> Iterator[pa.RecordBatch]:
        passes[0] += 1
        if passes[0] == 2 and when == "before":
            change()
        for number, batch in enumerate(stream(self, 100, how[1])):
            if passes[0] == 2 and when == "within" and number == 3:
                change()
            yield batch
        if passes[0] == 2 and when == "after":
            change()

    monkeypatch.setattr(FileSource, "_stream", changing)
    with pytest.raises(RequestError, match="changed while it was read") as caught:
        release(few(url))
    assert spent() == 0 and caught.value.__context__ is None
    monkeypatch.setattr(FileSource, "_stream", stream)
    assert len(release(few(url)).drawn) == 3


def test_a_connection_that_is_lost_costs_nothing_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_bucket() as bucket:
        url = bucket.write(people(20_000), "t.parquet", row_group_size=1_000)
        stream, passes = FileSource._stream, [0]

        def losing(self: FileSource, batch_rows: int, note: Any) -> Iterator[pa.RecordBatch]:
            passes[0] += 1
            for number, batch in enumerate(stream(self, 500, note)):
                if passes[0] == 2 and number == 3:  # the rows are being encoded: the price is reserved
                    bucket.server.stop()
                yield batch

        monkeypatch.setattr(FileSource, "_stream", losing)
        with pytest.raises(RequestError, match="does not answer, or broke off; no budget is lost") as caught:
            release(few(url))
        assert bucket.endpoint not in str(caught.value) and caught.value.__context__ is None and spent() == 0
        monkeypatch.setattr(FileSource, "_stream", stream)
        with pytest.raises(RequestError, match="does not answer"):
            release(few(url))
    with serve_bucket() as bucket:
        bucket.write(people(20_000), "t.parquet", row_group_size=1_000)
        assert len(release(few(url)).drawn) == 3


def test_what_is_wrong_with_a_place_is_said(bucket: Bucket) -> None:
    spec, name = few(""), bucket.name
    bucket.write(people(10), "mixed/a.parquet")
    bucket.write(people(10), "mixed/b.csv")
    bucket.write(people(10), "deep/below/a.parquet")
    bucket.write(people(10), "differ/a.parquet")
    bucket.write(people(10).drop(["age"]), "differ/b.parquet")
    bucket.write_bytes("none.parquet", b"no Parquet")
    for url, words in (
        (f"s3://{name}/missing.parquet", r"no object or folder 'missing\.parquet' in 'private'"),
        ("s3://elsewhere/t.parquet", "there is no bucket 'elsewhere'"),
        (f"s3://{name}/mixed", "mixes CSV and Parquet"),
        (f"s3://{name}/deep", "holds 'below', which is a folder"),
        (f"s3://{name}/differ", "do not have the same columns: 'age'"),
        (f"s3://{name}/none.parquet", "is not a whole, readable Parquet file"),
        ("s3:///t.parquet", "names no bucket"),
        (f"s3://{name}/t.parquet?endpoint_override=x", "has the option 'endpoint_override'"),
        (f"s3://{name}/t.parquet?query=SELECT 1", "has the option 'query'"),
    ):
        with pytest.raises(RequestError, match=words) as caught:
            open_source(url, spec)
        assert caught.value.field == "data"
    for url in ("s3://AKIASECRET@private/t.parquet", "s3://a:AKIASECRET@private/t.parquet"):
        with pytest.raises(RequestError, match=r"holds a password or a key.*environment") as caught:
            open_source(url, spec)
        assert "AKIASECRET" not in str(caught.value)


def test_a_schema_that_changed_is_named(bucket: Bucket) -> None:
    url = bucket.write(people(300), "schema.parquet")
    source = open_source(url, few(url))
    bucket.write(people(300).drop(["region"]), "schema.parquet")
    with pytest.raises(RequestError, match="changed while it was read"):
        source.check_rows()
    with pytest.raises(RequestError, match=r"columns: the spec lists 'region', which schema\.parquet does not have"):
        open_source(url, few(url))


def test_a_policy_allows_a_bucket_or_a_folder_of_it() -> None:
    url = DataUrl.parse("s3://private/study/people.parquet")
    for allowed, within in (
        ("s3://private", True),
        ("s3://private/study/", True),
        ("s3://private/study/people.parquet", True),
        ("s3://private/stud", False),
        ("s3://other/study", False),
        ("gs://private/study", False),
        ("postgresql://private/study", False),
    ):
        assert url.is_within([allowed]) is within


@pytest.mark.slow
def test_reading_an_object_takes_no_memory_for_its_size(bucket: Bucket) -> None:
    peaks = []
    for rows in (50_000, 400_000):
        url = bucket.write(people(rows), "large.parquet", row_group_size=50_000, compression="none")
        before, tops = pa.total_allocated_bytes(), 0
        for _ in open_source(url, make_spec()).batches(batch_rows=10_000):
            tops = max(tops, pa.total_allocated_bytes() - before)
        peaks.append(tops)
    assert peaks[1] < 1.5 * peaks[0]


@pytest.fixture
def made(kept: Kept, places: Path, monkeypatch: pytest.MonkeyPatch) -> ReleaseSummary:
    """A release that no setting sends to a store, the same for every test that asks for it."""
    data = kept.begin_with(monkeypatch, people(400))
    return kept.once(lambda: release_in_process(few(data), Settings()))  # type: ignore[no-any-return]


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

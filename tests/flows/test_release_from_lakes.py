"""A release of a Delta or an Iceberg table: that of the same rows in Parquet, of one version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl
from privsyn.base.settings import Settings
from privsyn.engine.policy_checks import check_table
from privsyn.extras.lakes.lake import DeltaReader
from privsyn.sources.open_source import list_table_columns, open_source
from privsyn.specs.draft import draft
from tests.flows.test_release_from_databases import read_released, release
from tests.support.object_stores import serve_bucket
from tests.support.releases import QUICK, few, spent
from tests.support.specs import make_spec, people

pytestmark = pytest.mark.usefixtures("places")


def write_delta(table: pa.Table, place: str | Path, **options: Any) -> str:
    """Write or append the rows; the table's URL."""
    pytest.importorskip("deltalake").write_deltalake(str(place), table, mode="append", **options)
    return f"delta+{place}" if "://" in str(place) else f"delta:///{place}"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog of Iceberg tables in an SQLite file, as the environment describes it, with the namespace ``study``."""
    pyiceberg = pytest.importorskip("pyiceberg.catalog")
    for name, value in (
        ("TYPE", "sql"),
        ("URI", f"sqlite:///{tmp_path}/c.sqlite"),
        ("WAREHOUSE", f"file://{tmp_path}"),
    ):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    monkeypatch.setattr(pyiceberg, "_ENV_CONFIG", type(pyiceberg._ENV_CONFIG)())  # it is read when it is first loaded
    made = pyiceberg.load_catalog("lake")
    made.create_namespace("study")
    return made


def write_iceberg(table: pa.Table, catalog: Any, name: str = "study.people") -> str:
    """Write or append the rows; the table's URL."""
    catalog.create_table_if_not_exists(name, schema=table.schema).append(table)
    return f"iceberg://lake/{name}"


def read_all(url: str, spec: Any) -> list[dict[str, Any]]:
    rows = pa.Table.from_batches(list(open_source(url, spec).batches())).to_pylist()
    return sorted(rows, key=lambda row: json.dumps(row, default=str))


@pytest.mark.parametrize("kinds", [("delta", "iceberg"), pytest.param(("iceberg", "delta"), marks=pytest.mark.slow)])
def test_equal_rows_make_an_equal_release_from_a_lake(
    save: Any, tmp_path: Path, catalog: Any, kinds: tuple[str, str]
) -> None:
    """One kind of table with a row a person, the other with several."""
    persons = {"unit": {"person_id": "caseid", "max_records": 2}}
    doubled = pa.concat_tables([people(600), people(300, seed=1)])
    for kind, rows, unit in zip(kinds, (people(500, seed=3), doubled), ({}, persons), strict=True):
        of_file = release(make_spec(data=save(rows, f"{kind}.parquet"), dataset=f"{kind}-file", **unit, **QUICK))
        is_delta = kind == "delta"
        url = write_delta(rows, tmp_path / kind) if is_delta else write_iceberg(rows, catalog, f"study.{kind}")
        of_lake = release(
            make_spec(data=url, dataset=f"{kind}-lake", **unit, **QUICK), new_dataset="the same rows, compared"
        )
        assert len(of_lake.drawn) == 3 and read_released(of_lake) == read_released(of_file)
    texts = "".join(f.read_text(errors="replace") for f in Path(of_lake.released).rglob("*") if f.is_file())
    assert "iceberg://" not in texts and "snapshot" not in texts


def test_the_newest_version_is_pinned_and_noted(tmp_path: Path) -> None:
    first = people(400)
    url = write_delta(first, tmp_path / "t")
    made = release(few(url))
    note = json.loads((Path(made.private) / "run.json").read_text())
    assert note["data"] == note["files"][0] and DataUrl.parse(note["data"]).options == {"version": "0"}
    paid = spent()
    source = open_source(url, few(url))
    write_delta(people(100, seed=1), tmp_path / "t")
    assert sum(batch.num_rows for batch in source.batches()) == 400
    source.close()
    assert sum(batch.num_rows for batch in source.batches()) == 400
    assert release(few(f"{url}?version=0")).drawn == () and spent() == paid
    assert len(read_all(f"{url}?version=1", few(url))) == len(read_all(url, few(url))) == 500


def test_partitions_and_deleted_rows_are_read(tmp_path: Path) -> None:
    import deltalake

    table, spec = people(1_000), make_spec()
    url = write_delta(table, tmp_path / "t", partition_by=["region"])
    deltalake.DeltaTable(str(tmp_path / "t")).delete("age < 30")
    kept = table.filter(pa.compute.fill_null(pa.compute.greater_equal(table["age"], 30), True))
    names = [name for name in spec.columns if name != "caseid"]
    found = read_all(url, spec)
    assert len(found) == kept.num_rows and set(found[0]) == set(names)
    wanted = sorted(kept.select(list(found[0])).to_pylist(), key=lambda row: json.dumps(row, default=str))
    assert found == wanted
    assert set(list_table_columns(url, spec)) == set(spec.columns)
    assert "delta:///" in draft(url)


def test_an_iceberg_table_is_found_by_catalog_and_by_file(catalog: Any) -> None:
    spec = few("")
    url = write_iceberg(people(300), catalog)
    first = catalog.load_table("study.people").metadata.current_snapshot_id
    write_iceberg(people(200, seed=1), catalog)
    table = catalog.load_table("study.people")
    file = f"iceberg:///{table.metadata_location.removeprefix('file://')}"
    for place, many in ((url, 500), (file, 500), (f"{url}?snapshot={first}", 300), (f"{file}?snapshot={first}", 300)):
        assert len(read_all(place, spec)) == many
    source = open_source(url, spec)
    assert source.names[0] == f"{url}?snapshot={table.metadata.current_snapshot_id}"


def test_what_is_wrong_with_a_place_is_said(tmp_path: Path, catalog: Any) -> None:
    spec = few("")
    delta, iceberg = write_delta(people(10), tmp_path / "t"), write_iceberg(people(10), catalog)
    (tmp_path / "empty").mkdir()
    for url, words in (
        (f"delta:///{tmp_path}/none", "none is not there"),
        (f"delta:///{tmp_path}/empty", "empty is not there"),
        (f"{delta}?version=7", "does not have this version"),
        (f"{delta}?version=new", "has the version 'new', which is no whole number"),
        (f"{delta}?table=t", "has the option 'table'"),
        (f"delta://{tmp_path.name}/t", "three slashes"),
        ("delta:///", "names no table"),
        ("delta+s3:///t", "names no bucket"),
        ("iceberg://lake/study.persons", "is not in the catalog"),
        (f"{iceberg}?snapshot=1", "has no snapshot 1"),
        ("iceberg://lost/study.people", "is in a catalog that is not known here"),
        (f"iceberg:///{tmp_path}/none.metadata.json", "is not there"),
    ):
        with pytest.raises(RequestError, match=words) as caught:
            open_source(url, spec)
        assert caught.value.field == "data" and caught.value.__context__ is None


def test_files_outside_the_folder_of_a_table_are_not_read(tmp_path: Path, catalog: Any) -> None:
    """What a log names could be any file that the worker may read, and that no policy allows."""
    write_iceberg(people(10), catalog)
    location = Path(catalog.load_table("study.people").metadata_location.removeprefix("file://"))
    (tmp_path / "copy" / "metadata").mkdir(parents=True)
    shutil.copy(location, tmp_path / "copy" / "metadata")
    with pytest.raises(RequestError, match="has files outside its folder"):
        open_source(f"iceberg:///{tmp_path}/copy/metadata/{location.name}", few(""))


def test_a_policy_names_the_tables_of_a_lake(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {"paths": [str(places / "lake"), "s3://private/study", "iceberg://lake/study.people"]}
    budget = {"budget": {"epsilon": 10, "delta": 1e-8}, "epsilon": 1, "delta": 1e-9}
    (places / "policy.yaml").write_text(json.dumps({"others": {**rules, **budget}}))
    monkeypatch.setenv("PRIVSYN_POLICY", str(places / "policy.yaml"))
    for url in (f"delta:///{places}/lake/t", "delta+s3://private/study/t?version=1", "iceberg://lake/study.people"):
        check_table("people", url, Settings(), "data")
    for url in (
        f"delta:///{places}/t",
        "delta+s3://private/t",
        "iceberg://lake/study.other",
        "iceberg://else/study.people",
    ):
        with pytest.raises(RequestError, match=r"is not among the policy's others\.paths"):
            check_table("people", url, Settings(), "data")


@pytest.mark.slow
def test_a_delta_table_in_a_store_is_read_and_a_lost_connection_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = people(3_000)
    with serve_bucket() as bucket:
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # for the writer below
        url = write_delta(table, f"s3://{bucket.name}/lake/t")
        monkeypatch.delenv("AWS_ALLOW_HTTP")
        assert len(read_all(url, few(url))) == 3_000
        read, passes = DeltaReader.read, [0]

        def losing(self: DeltaReader, *how: Any) -> Iterator[pa.RecordBatch]:
            passes[0] += 1
            if passes[0] == 2:
                bucket.server.stop()
            yield from read(self, *how)

        monkeypatch.setattr(DeltaReader, "read", losing)
        with pytest.raises(RequestError, match="does not answer, or broke off; no budget is lost") as caught:
            release(few(url))
        assert bucket.endpoint not in str(caught.value) and caught.value.__context__ is None and spent() == 0
        monkeypatch.setattr(DeltaReader, "read", read)
    with serve_bucket() as bucket:
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        write_delta(table, f"s3://{bucket.name}/lake/t")
        assert len(release(few(url)).drawn) == 3

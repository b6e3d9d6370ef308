"""Formats of whole releases: asked for in the spec or added later, at no cost, and held to their manifests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.api.ledger import LedgerView
from privsyn.api.release import propose_release
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.admission import check_request
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import ReleaseSummary, add_formats, is_whole
from privsyn.storage.released_files import read_manifest
from privsyn.storage.store import Store
from privsyn.tasks.privacy.noise import NoNoise
from tests.support.commands import privsyn
from tests.support.described import ABOUT
from tests.support.kept import Kept
from tests.support.places import FIXTURES
from tests.support.releases import few, read_files, run
from tests.support.specs import changed, people

OLD = FIXTURES / "released_0_2_0"


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    """All of its data set's lifetime cap goes into one release: nothing else can be paid for."""
    data, price = kept.begin_with(monkeypatch, people(400)), {"epsilon": 1.0, "delta": 1e-9}
    return few(data, privacy=price, budget=price)


@pytest.fixture
def first(kept: Kept, spec: ReleaseSpec) -> ReleaseSummary:
    """A finished release of ``spec``, the same for every test that asks for it."""
    return kept.once(lambda: run(spec))  # type: ignore[no-any-return]


def entries() -> int:
    return Ledger(Settings().ledger).summary("people")[0].entries


def disagreements() -> list[str]:
    return list(LedgerView(Settings()).verify().problems)


def test_other_formats_and_words_rerun_the_publishing_only(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    folder, before, paid = Path(first.released), read_files(Path(first.released)), entries()
    more = changed(spec, formats=["parquet", "csv"], about=ABOUT)
    check_request(propose_release(more, Settings()))
    second = run(more)
    assert (second.drawn, second.run, entries()) == ((), first.run, paid)
    after = read_files(folder)
    assert set(after) - set(before) == {"synthetic.csv"}
    assert {n for n in before if before[n] != after[n]} == {
        *("README.md", "croissant.json", "datapackage.json", "manifest.json", "registry.yaml")
    }
    for words in ("Statistics Office", "CC-BY-4.0", "`synthetic.csv`"):
        assert words in after["README.md"].decode()
    assert is_whole(folder)
    assert disagreements() == []
    run(more)
    assert read_files(folder) == after
    columns = {n: c.model_dump() for n, c in spec.columns.items()}
    worded = changed(spec, columns={**columns, "age": {**columns["age"], "description": "age at interview"}})
    check_request(propose_release(worded, Settings()))
    assert (run(worded).drawn, entries()) == ((), paid)
    assert "age at interview" in (folder / "README.md").read_text()
    run(spec)
    assert read_files(folder) == before


def test_a_csv_like_the_source_reruns_the_publishing_only(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    first, paid = run(changed(spec, formats=["parquet", "csv"])), entries()
    before = read_files(Path(first.released))
    second = run(changed(spec, formats=["parquet", "csv"], like="source"))
    assert (second.drawn, second.run, entries()) == ((), first.run, paid)
    after = read_files(Path(first.released))
    assert set(after) == set(before) and after["synthetic.parquet"] == before["synthetic.parquet"]
    assert "written as the source's files are" in after["README.md"].decode()
    assert 'dec = "."' in after["README.md"].decode() and "like" not in json.loads(before["manifest.json"])["spec"]
    assert is_whole(Path(first.released)) and disagreements() == []
    # The manifest holds the csv to its bytes.
    folder = Path(run(changed(spec, formats=["parquet", "csv"])).released)
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(listed) == set(read_files(folder)) - {"manifest.json"}
    with (folder / "synthetic.csv").open("a") as file:
        file.write("1,2,3\r\n")
    assert not is_whole(folder)
    assert any("files" in problem for problem in disagreements())
    run(changed(spec, formats=["parquet", "csv"]))
    assert is_whole(folder)


def test_a_format_added_later_is_the_one_that_was_asked_for(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    asked = run(changed(spec, formats=["parquet", "csv"], about=ABOUT))
    folder = Path(asked.released)
    wanted, paid = read_files(folder), entries()
    run(changed(spec, about=ABOUT))
    assert "synthetic.csv" not in read_files(folder)
    added = add_formats(asked.run, ["csv"], Settings())
    assert (added.folder, added.files) == (folder, ("synthetic.csv",))
    assert read_files(folder) == wanted
    assert add_formats(str(folder), ["csv"], Settings()).files == ()
    assert entries() == paid
    assert disagreements() == []


def test_what_the_command_added_stays_when_the_spec_runs_again(spec: ReleaseSpec, first: ReleaseSummary) -> None:
    """Also with other words about it, and where the folder is lost and written anew."""
    folder = Path(first.released)
    add_formats(first.run, ["csv"], Settings())
    added, paid = read_files(folder), entries()
    run(spec)
    assert read_files(folder) == added
    run(changed(spec, about=ABOUT))
    assert read_files(folder)["synthetic.csv"] == added["synthetic.csv"]
    shutil.rmtree(folder)
    run(spec)
    assert read_files(folder) == added
    assert (entries(), disagreements()) == (paid, [])


@pytest.mark.parametrize("lost", ["record", "folder"])
def test_the_versions_are_those_that_made_the_tables(
    spec: ReleaseSpec, first: ReleaseSummary, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """After an upgrade other words are published, and the tables are the old ones."""
    folder = Path(first.released)
    old = read_manifest(folder).versions
    monkeypatch.setattr("privsyn.publish.certificate_of_run.list_versions", lambda: {**old, "numpy": "99.0"})
    if lost == "record":
        (Settings().private_root / "records" / "people" / f"versions-{first.run}.json").unlink()
    else:
        shutil.rmtree(folder)
    run(changed(spec, about=ABOUT))
    assert "Statistics Office" in (folder / "README.md").read_text()
    assert read_manifest(folder).versions == old
    other = run(changed(spec, about=ABOUT, synthesis={**spec.mechanism.synthesis.model_dump(), "seed": 99}))
    assert read_manifest(Path(other.released)).versions["numpy"] == "99.0"


def test_a_run_that_ends_while_the_command_waits_is_not_undone(
    spec: ReleaseSpec, first: ReleaseSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Store.lock

    @contextmanager
    def late(store: Store, name: str, timeout: float = -1) -> Iterator[None]:
        """Another run has the lock first, and publishes other words."""
        monkeypatch.setattr(Store, "lock", lock)
        run(changed(spec, about=ABOUT))
        with lock(store, name, timeout):
            yield

    monkeypatch.setattr(Store, "lock", late)
    add_formats(first.run, ["csv"], Settings())
    folder = Path(first.released)
    assert "synthetic.csv" in read_files(folder)
    assert "Statistics Office" in (folder / "README.md").read_text()
    assert is_whole(folder)


@pytest.mark.slow
def test_a_table_in_parts_has_its_formats_in_parts(spec: ReleaseSpec) -> None:
    frictionless = pytest.importorskip("frictionless", reason="install privsyn-flows[formats-check]")
    mlcroissant = pytest.importorskip("mlcroissant", reason="install privsyn-flows[formats-check]")
    summary = run(changed(spec, synthesis={"sweeps": 1, "shard_rows": 1_000, "rows": 2_500}))
    folder = Path(summary.released)
    assert {n for n in read_files(folder) if n.startswith("synthetic")} == {
        f"synthetic/part-{i:05d}.parquet" for i in range(3)
    }
    added = add_formats(summary.run, ["csv"], Settings())
    assert added.files == tuple(f"synthetic_csv/part-{i:05d}.csv" for i in range(3))
    assert is_whole(folder)
    assert disagreements() == []
    assert frictionless.validate(str(folder / "datapackage.json")).valid
    assert sum(1 for _ in mlcroissant.Dataset(str(folder / "croissant.json")).records("rows")) == 2_500


def test_what_is_no_whole_release_gets_no_format(first: ReleaseSummary, tmp_path: Path) -> None:
    folder = Path(first.released)
    for name in ("nobody-00000000", "", ".", "..", str(tmp_path), "people-0000/../x"):
        with pytest.raises(RequestError, match="there is no release"):
            add_formats(name, ["csv"], Settings())
    (folder / "marginals" / "scores.parquet").unlink()
    before = read_files(folder)
    with pytest.raises(RequestError, match="not a whole release"):
        add_formats(folder.name, ["csv"], Settings())
    assert read_files(folder) == before
    shutil.rmtree(Settings().private_root)
    run_again = folder.name
    with pytest.raises(RequestError):
        add_formats(run_again, ["csv"], Settings())
    assert not Settings().private_root.exists()


def test_test_noise_is_described_to_nobody(spec: ReleaseSpec) -> None:
    summary = run(changed(spec, formats=["parquet", "csv"]), noise=NoNoise())
    names = set(read_files(Path(summary.released)))
    assert "synthetic.csv" in names
    assert not {"croissant.json", "datapackage.json", "registry.yaml"} & names
    assert "NOT PRIVATE" in (Path(summary.released) / "README.md").read_text()


def old_release(out: Path) -> Path:
    """A release as version 0.2.0 left it, with the table that its manifest names."""
    folder = out / "released" / "people-3de898c8"
    shutil.copytree(OLD, folder)
    (out / "private").mkdir()
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    ages = pa.array([20, 30, 40], pa.int64())
    columns = {"age": ages, "region": ["north", "south", "other"]}
    pq.write_table(pa.table({n: columns[n] for n in manifest["column_order"]}), folder / "synthetic.parquet")
    (folder / "marginals").mkdir(exist_ok=True)
    counts = [(["age"], [2.0, 1.0]), (["region"], [2.0, 1.0]), (["age", "region"], [2.0, 0.0, 0.0, 1.0])]
    marginals = [{"clique": i, "attributes": a, "counts": c, "sigma": 1.0} for i, (a, c) in enumerate(counts)]
    pq.write_table(pa.Table.from_pylist(marginals), folder / "marginals" / "consistent.parquet")
    from privsyn.publish.formats.tables import list_files

    manifest["files"] = {n: f.model_dump() for n, f in list_files(folder).items()}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def test_a_release_of_0_2_0_gets_formats_too(tmp_path: Path) -> None:
    frictionless = pytest.importorskip("frictionless", reason="install privsyn-flows[formats-check]")
    settings = Settings(out=tmp_path / "out", ledger=str(tmp_path / "none.sqlite"))
    folder = old_release(tmp_path / "out")
    certificate = (folder / "certificate.json").read_bytes()
    added = add_formats(folder.name, ["csv"], settings)
    descriptions = {"croissant.json", "datapackage.json", "registry.yaml"}
    assert set(added.files) == {"README.md", "relations.svg", "synthetic.csv"} | descriptions
    assert (folder / "certificate.json").read_bytes() == certificate
    assert is_whole(folder)
    assert (folder / "synthetic.csv").read_text().splitlines()[1] == '20,"north"'
    assert frictionless.validate(str(folder / "datapackage.json")).valid
    assert not (tmp_path / "none.sqlite").exists()


def test_the_command_says_what_it_did(first: ReleaseSummary) -> None:
    done = privsyn("formats", first.run, "--to", "csv", "--json")
    assert (done.exit_code, json.loads(done.stdout)["added"]) == (0, ["synthetic.csv"])
    assert "Cost: nothing" in done.stderr
    again = privsyn("formats", first.run, "--to", "csv")
    assert "Added nothing: it was there. Cost: nothing." in again.stdout and again.stderr == ""
    for arguments, says in ((["--to", "xlsx"], "--to: 'xlsx' is not a format"), ([], "--to")):
        refused = privsyn("formats", first.run, *arguments)
        assert refused.exit_code == 2
        assert says in refused.stderr

"""A synthetic table in shards: a folder of parts that everything after it reads as one table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.coded_tables import open_release, open_table
from privsyn.evaluation.private_evaluation import AskedEvaluation, evaluate
from privsyn.evaluation.quality_release import publish_quality
from privsyn.publish.folder import ReleaseSummary, is_whole
from tests.support.evaluations import SLIGHT
from tests.support.kept import Kept
from tests.support.releases import few, run
from tests.support.specs import people

SHARDS: dict[str, Any] = {"sweeps": 2, "rows": 1_000, "shard_rows": 300}


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    return few(kept.begin_with(monkeypatch, people(300)), synthesis=SHARDS, formats=["parquet", "csv"])


@pytest.fixture
def done(kept: Kept, spec: ReleaseSpec) -> ReleaseSummary:
    """A release of ``spec``, the same for every test that asks for it."""
    return kept.once(lambda: run(spec))  # type: ignore[no-any-return]


def parts(released: str) -> list[Path]:
    return sorted((Path(released) / "synthetic").glob("*.parquet"))


def contents(released: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in parts(released)}


def test_a_release_in_shards_is_a_folder_of_parts_with_one_schema(done: ReleaseSummary) -> None:
    folder = Path(done.released)
    assert [path.name for path in parts(done.released)] == [f"part-{i:05}.parquet" for i in range(4)]
    assert [pq.read_metadata(path).num_rows for path in parts(done.released)] == [250] * 4
    assert not (folder / "synthetic.parquet").exists()
    assert is_whole(folder)
    assert json.loads((folder / "manifest.json").read_text())["rows"] == done.rows == 1_000
    assert "synthetic/part-*.parquet" in (folder / "README.md").read_text()
    assert pq.read_table(folder / "synthetic").num_rows == 1_000
    assert len({pq.read_schema(path) for path in parts(done.released)}) == 1
    assert contents(done.released)["part-00000.parquet"] != contents(done.released)["part-00001.parquet"]
    # With csv beside the parts the release is still read.
    release = open_release(done.run, Settings())
    assert len(list((Path(done.released) / "synthetic_csv").glob("*.csv"))) == 4
    assert open_table(release.synthetic, release.encoding, release.spec, "evaluate.release").read().fine.rows == 1_000


def test_shards_depend_on_the_seed_and_on_no_number_of_threads(
    spec: ReleaseSpec, done: ReleaseSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = contents(done.released)
    for path in (Settings().private_root / "store" / "people").glob("synthesize-*"):
        shutil.rmtree(path)
    monkeypatch.setenv("PRIVSYN_THREADS", "2")
    again = run(spec)
    assert (again.run, again.drawn) == (done.run, ())
    assert contents(again.released) == made
    other = run(few(spec.data, synthesis={**SHARDS, "seed": 1}))
    assert other.drawn == ()
    assert contents(other.released) != made


def test_a_part_that_is_changed_lost_or_added_is_made_anew(spec: ReleaseSpec, done: ReleaseSummary) -> None:
    made = contents(done.released)
    (folder,) = (Settings().private_root / "store" / "people").glob("decode-*-synthetic")
    for harm in (
        lambda: (folder / "part-00001.parquet").write_bytes(b"broken"),
        lambda: (folder / "part-00003.parquet").unlink(),
        lambda: (folder / "part-00004.parquet").write_bytes((folder / "part-00000.parquet").read_bytes()),
    ):
        harm()
        again = run(spec)
        assert again.drawn == ()
        assert contents(again.released) == made
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == made
    parts(done.released)[0].write_bytes(b"broken")
    assert contents(run(spec).released) == made


@pytest.mark.slow
def test_evaluation_and_quality_figures_read_all_parts(done: ReleaseSummary) -> None:
    release = open_release(done.run, Settings())
    assert [path.name for path in release.synthetic] == [path.name for path in parts(done.released)]
    assert open_table(release.synthetic, release.encoding, release.spec, "evaluate.release").read().fine.rows == 1_000
    figures = publish_quality(done.run, 0.5, Settings())
    assert json.loads((Path(figures.released) / "figures.json").read_text())["synthetic_rows"] == 1_000
    assert evaluate(AskedEvaluation(done.run, spec=EvaluationSpec.model_validate(SLIGHT)), Settings()) is not None

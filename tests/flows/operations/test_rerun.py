"""A release made again from its released folder alone: byte for byte elsewhere, and every kind of change is found."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.api.rerun import rerun
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.engine.step import list_published_files
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.certificate_of_run import list_versions
from tests.support.commands import privsyn
from tests.support.examples import keep_first
from tests.support.places import ROOT
from tests.support.releases import read_files, release_in_process
from tests.support.specs import COLUMNS, make_spec, people

COMMAND = [sys.executable, "-m", "privsyn.cli", "rerun"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One release's folder, and nothing else of it."""
    home = tmp_path_factory.mktemp("made")
    pq.write_table(people(400), home / "people.parquet")
    settings = Settings(out=home / "out", ledger=str(home / "ledger.sqlite"), threads=2)
    spec = make_spec(
        {**COLUMNS, "age": {**COLUMNS["age"], "description": "in whole years"}},
        data=str(home / "people.parquet"),
        privacy={"epsilon": 4.0, "delta": 1e-9},
        formats=["parquet", "csv"],
        selection={"combine_cliques": True},
        synthesis={"seed": 11},
    )
    summary = release_in_process(spec, settings)
    folder = home / "given" / summary.run
    shutil.copytree(summary.released, folder)
    for name in ("out", "people.parquet", "ledger.sqlite"):
        path = home / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / made.name))


OLDER_CPU = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "OPENBLAS_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": " ".join(np._core._multiarray_umath.__cpu_dispatch__),
}
"""Linear algebra and numpy as on a CPU without vectors of 256 bits: other last bits than here, where there are some."""


@pytest.mark.slow
def test_the_folder_alone_gives_the_same_bytes_elsewhere(made: Path, tmp_path: Path) -> None:
    """In another process, with an empty home, another number of threads and an older CPU; nothing is left there."""
    home, place = tmp_path / "home", tmp_path / "place"
    for folder in (home, place):
        folder.mkdir()
    shutil.copytree(made, place / made.name)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PRIVSYN_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment |= OLDER_CPU
    before = read_files(place)
    done = subprocess.run(
        [*COMMAND, made.name, "--json", "-o", str(tmp_path / "again")],
        cwd=place, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["agrees"], told["problems"], told["unknown"], told["versions"]) == (True, [], [], {})
    assert read_files(place) == before  # nothing else was left: no ledger, no private folder
    assert not [p for p in home.rglob("*") if p.is_file() and "numba" not in str(p)]
    again = read_files(tmp_path / "again")
    assert again == read_files(made)  # the manifest too
    assert set(told["files"]) == set(again) - {"manifest.json"}
    given = {name for name, file in told["files"].items() if file["made_anew"] is None}
    assert given == {"certificate.json"} | {
        file for file, table in list_published_files(STEPS).items()
        if table.split(".")[0] in ("one_way_marginals", "indif_scores", "measure_marginals")
    }  # fmt: skip
    assert "was reproduced: every file is byte for byte" in done.stderr


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"preset": "paper"}, marks=pytest.mark.slow),
        {"adaptive": {"rounds": 1, "triples": True}, "synthesis": {"rows": 900, "shard_rows": 300}},
        pytest.param({"compression": {"enabled": False}, "synthesis": {"rows": 0}}, marks=pytest.mark.slow),
        pytest.param({"rules": [{"never": "age < 30 and happy"}]}, marks=pytest.mark.slow),
    ],
    ids=["paper", "rounds-and-shards", "no-rows", "rules"],
)
def test_every_way_of_making_a_release_is_reproduced(places: Path, how: dict[str, Any]) -> None:
    pq.write_table(people(300), places / "people.parquet")
    spec = make_spec(data=str(places / "people.parquet"), privacy={"epsilon": 2.0, "delta": 1e-9}, **how)
    summary = release_in_process(spec, Settings(threads=2))
    moved = shutil.copytree(summary.released, places / "moved")
    shutil.rmtree(places / "out")
    found = rerun(str(moved), Settings(out=places / "elsewhere", threads=1))
    assert [f.name for f in found.files if not f.agrees] == []
    assert found.agrees
    assert not (places / "elsewhere").exists()


def tamper_noisy(folder: Path) -> str:
    """One count of one noisy marginal is another."""
    path = folder / "marginals" / "measured.parquet"
    table = pq.read_table(path)
    counts = table["count"].to_pylist()
    counts[0] += 400
    changed = table.set_column(table.column_names.index("count"), "count", pa.array(counts, table["count"].type))
    pq.write_table(changed, path, store_schema=False, compression="zstd")
    return "marginals/measured.parquet"


def tamper_synthetic(folder: Path) -> str:
    path = folder / "synthetic.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path, store_schema=False, compression="zstd")
    return "synthetic.parquet"


def tamper_note(folder: Path) -> str:
    with (folder / "README.md").open("a") as file:
        file.write("And it is exact.\n")
    return "README.md"


def remove_scores(folder: Path) -> str:
    (folder / "marginals" / "scores.parquet").unlink()
    return "marginals/scores.parquet"


@pytest.mark.parametrize("tamper", keep_first([tamper_noisy, remove_scores, tamper_synthetic, tamper_note], 2))
def test_a_changed_file_is_named(copied: Path, tamper: Callable[[Path], str]) -> None:
    name = tamper(copied)
    found = rerun(str(copied), Settings())
    assert not found.agrees
    assert [f.name for f in found.files if not f.on_disk] == [name]
    result = privsyn("rerun", str(copied))
    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if line.startswith(name))
    assert "is missing or not the file of the manifest" in line
    assert "NOT reproduced" in result.stdout and result.stderr == ""


def seal(folder: Path, *names: str) -> None:
    """Whoever changes a file can change its hash in the manifest too."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in names:
        content = (folder / name).read_bytes()
        manifest["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def test_a_changed_noisy_marginal_is_found_though_its_hash_was_changed_too(copied: Path) -> None:
    seal(copied, tamper_noisy(copied))
    found = rerun(str(copied), Settings())
    assert all(f.on_disk for f in found.files)
    differing = {f.name for f in found.files if not f.agrees}
    assert {"synthetic.parquet", "synthetic.csv", "marginals/consistent.parquet"} <= differing
    assert "marginals/recode.parquet" not in differing  # it rests on the one-ways alone
    result = privsyn("rerun", str(copied), "--json")
    assert (result.exit_code, json.loads(result.stdout)["agrees"]) == (1, False)


def test_what_was_asked_must_follow_from_what_was_released_before(copied: Path) -> None:
    """Scores that would have led to another choice of pairs."""
    path = copied / "marginals" / "scores.parquet"
    table = pq.read_table(path)
    zeros = pa.array([0] * table.num_rows, table["count"].type)
    changed = table.set_column(table.column_names.index("count"), "count", zeros)
    pq.write_table(changed, path, store_schema=False, compression="zstd")
    seal(copied, "marginals/scores.parquet")
    assert "what the step 'Measure marginals' asked does not follow" in " ".join(
        rerun(str(copied), Settings()).problems
    )


@pytest.mark.parametrize("rho", ["1/7", "none", "1/0"])
def test_receipts_that_no_query_has_are_a_problem_and_no_fault(copied: Path, rho: str) -> None:
    path = copied / "marginals" / "scores_receipts.parquet"
    table = pq.read_table(path)
    changed = table.set_column(table.column_names.index("rho"), "rho", pa.array([rho] * table.num_rows))
    pq.write_table(changed.cast(table.schema), path, store_schema=False, compression="zstd")
    seal(copied, "marginals/scores_receipts.parquet")
    result = privsyn("rerun", str(copied), "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["agrees"]) == (1, False)
    (problem,) = told["problems"]
    assert "the receipts of the step 'InDif scores'" in problem


def test_a_file_that_nobody_released_is_named(copied: Path) -> None:
    (copied / "marginals" / "more.parquet").write_bytes(b"x")
    found = rerun(str(copied), Settings())
    assert (found.agrees, found.unknown) == (False, ("marginals/more.parquet",))


def test_other_versions_are_listed(copied: Path) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["versions"] |= {"numpy": "1.26.4", "python": "3.12.1"}
    (copied / "manifest.json").write_text(json.dumps(manifest))
    tamper_note(copied)
    result = privsyn("rerun", str(copied))
    words = " ".join(result.stdout.split())
    assert "What differs may come from that" in words
    assert "numpy 1.26.4 (here " in words
    assert "python 3.12.1 (here " in words
    assert "pyarrow" not in words


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let this be a later version of the program than the one that made the release."""
    here = {**list_versions(), "privsyn-flows": "99.0"}
    return lambda: monkeypatch.setattr("privsyn.api.rerun.list_versions", lambda: here)


def test_an_earlier_version_s_description_in_other_words_is_named_and_the_data_agree(
    copied: Path, later: Callable[[], None]
) -> None:
    tamper_note(copied)
    seal(copied, "README.md")
    command = ["rerun", str(copied)]
    assert privsyn(*command).exit_code == 1  # this version writes it as it does
    later()
    result = privsyn(*command)
    assert result.exit_code == 0, result.stdout
    words = " ".join(result.stdout.split())
    assert "README.md is written differently by this version" in words
    assert "every table was reproduced byte for byte. Only README.md is written differently by this version." in words
    assert "(here 99.0)" in words and "NOT reproduced" not in words
    told = json.loads(privsyn(*command, "--json").stdout)
    assert (told["agrees"], told["data_agree"], told["written_differently"]) == (False, True, ["README.md"])
    assert "agrees in its data" in repr(rerun(str(copied), Settings()))


@pytest.mark.parametrize("tamper", keep_first([tamper_synthetic, tamper_note], 2))
def test_an_earlier_version_excuses_no_changed_file(
    copied: Path, later: Callable[[], None], tamper: Callable[[Path], str]
) -> None:
    """Neither data nor a description that is not the manifest's."""
    name = tamper(copied)
    if name != "README.md":
        seal(copied, name)
    later()
    found = rerun(str(copied), Settings())
    assert not found.data_agree and found.reworded == ()
    assert privsyn("rerun", str(copied)).exit_code == 1


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (lambda folder: ["no-such-run"], "RUN: there is no release 'no-such-run':"),
        (lambda folder: [str(folder), "-o", str(folder)], "--output: .* exists already"),
        (lambda folder: [str(folder), "-o", str(folder / "no" / "where")], "--output: .* or its folder does not"),
        (lambda folder: [str(folder), "-o", ""], "--output: is empty"),
    ],
)
def test_wrong_requests_are_refused_in_words(
    copied: Path, places: Path, request_of: Callable[[Path], list[str]], words: str
) -> None:
    before = read_files(copied)
    result = privsyn("rerun", *request_of(copied))
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert re.search(words, line)
    assert read_files(copied) == before


def test_a_manifest_of_another_version_is_refused_in_words(copied: Path) -> None:
    manifest: dict[str, Any] = json.loads((copied / "manifest.json").read_text())
    manifest["spec"]["mechanism"]["synthesis"]["of_later"] = 3
    (copied / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RequestError, match=r"written by another version .* Use the version that it names"):
        rerun(str(copied), Settings())

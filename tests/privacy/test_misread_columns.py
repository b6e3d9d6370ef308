"""Bug class 12: how much of a column was repaired is private: it reaches the private zone and a terminal only.

It does not see repairs of databases, workbooks, linked tables and itemsets: its table is a CSV file.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.publish import folder
from privsyn.specs.misread import list_misread_columns
from tests.privacy.test_side_outputs import everything_logged
from tests.support.commands import privsyn, use_no_server
from tests.support.examples import keep_first

ROWS, LOST = 613, 419
SIGNS = ("could not be read", "68.35", "68.4%", f'"rows": {LOST}', "unparseable")
"""What would tell how many values were repaired, or that any were."""

SPEC = """\
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 1, delta: 1.0e-9}
budget: {epsilon: 9, delta: 1.0e-9}
mechanism: {name: independent}
columns:
  age: {kind: integer, min: 0, max: 9}
  seen: {kind: datetime, min: 2015-01-01, max: 2020-01-01, nullable: true}
"""


@pytest.fixture
def spec(places: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    seen = ["31/12/2016" if i < LOST else "2016-12-31" for i in range(ROWS)]
    pq.write_table(pa.table({"age": [i % 10 for i in range(ROWS)], "seen": seen}), places / "people.parquet")
    (places / "people.yaml").write_text(SPEC, encoding="utf-8")
    use_no_server(monkeypatch)
    return places / "people.yaml"


def shown(*texts: str) -> list[str]:
    """Signs in texts and in released files; Parquet tables are noisy counts and rows, which have their own numbers."""
    released = [p for p in Settings().released_root.rglob("*") if p.is_file() and p.suffix != ".parquet"]
    contents = {"text": "\n".join(texts), **{p.name: p.read_text(encoding="utf-8") for p in released}}
    return [f"{name}: {sign}" for name, content in contents.items() for sign in SIGNS if sign in content]


def piped(spec: Path, *options: str) -> list[str]:
    """Signs in everything but the private zone, after a release whose output nobody watches."""
    with everything_logged() as logged:
        result = privsyn("release", spec, *options)
    assert result.exit_code == 0, result.output
    assert (
        folder.count_repairs(next((Settings().private_root / "runs").iterdir())).counts["seen", "unparseable"] == LOST
    )
    words = "\n".join((*result.output.splitlines(), *logged)).replace(str(spec.parent), "")
    return shown(*(line for line in words.splitlines() if "tmp" not in line))


@pytest.mark.parametrize("options", keep_first([("--json",), ()]))
def test_12_a_pipe_a_log_json_and_the_release_are_silent(
    spec: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich takes it for a terminal
    assert piped(spec, *options) == []


PUBLISH, NOTE = folder._publish_private, folder.release_note


def log_repairs(run: Any, refs: Any) -> None:
    import logging

    PUBLISH(run, refs)
    found = folder.count_repairs(run.private_folder)
    logging.getLogger("privsyn").warning("%s", [m.sentence() for m in list_misread_columns(found.counts, found.rows)])


def note_repairs(*arguments: Any, **named: Any) -> str:
    return NOTE(*arguments, **named) + "\nOf `seen` 68.4% could not be read.\n"


MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "no look whether it is a terminal": ("privsyn.cli.release_command.is_on_terminal", lambda: True),
    "a warning in the log": ("privsyn.publish.folder._publish_private", log_repairs),
    "a line in the released note": ("privsyn.publish.folder.release_note", note_repairs),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_12_mutant_says_it_elsewhere(
    spec: Path, monkeypatch: pytest.MonkeyPatch, mutant: tuple[str, Callable[..., Any]]
) -> None:
    """Planted mutant: somewhere else says what was repaired."""
    monkeypatch.setattr(*mutant)
    assert piped(spec) != []


def test_12_prefect_learns_nothing_of_it(spec: Path, prefect_server: str) -> None:
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import get_current_settings

    from privsyn.flows.release import release
    from privsyn.specs.spec_file import load_spec

    with everything_logged() as logged:
        release(load_spec(spec))
        APILogWorker.instance().drain()
    url = get_current_settings().server.database.connection_url
    assert url is not None
    database = Path(url.get_secret_value().partition(":///")[2])
    stored = b"".join(p.read_bytes() for p in database.parent.glob("*.db*"))
    assert b"one_way_marginals" in stored
    assert [s for s in SIGNS if s.encode() in stored or any(s in line for line in logged)] == []
    assert shown() == []


def on_a_terminal(spec: Path, stdout: int) -> tuple[str, int]:
    """What a release writes on a terminal that is its standard error, and its exit code."""
    reading, terminal = pty.openpty()
    command = [sys.executable, "-m", "privsyn.cli", "release", str(spec), "--json"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=terminal, cwd=spec.parent)
    os.close(terminal)
    told = b""
    while True:
        try:
            part = os.read(reading, 65_536)
        except OSError:  # the last writer is gone
            break
        if not part:
            break
        told += part
    os.close(reading)
    return told.decode("utf-8", "replace"), process.wait()


def test_12_a_check_warns_on_standard_error(spec: Path) -> None:
    checked = privsyn("spec", "check", spec, "--data", spec.parent / "people.parquet")
    assert "PRIVATE: `seen`: of its values 68.4% could not be read." in checked.stderr
    assert "PRIVATE: `seen`" not in checked.stdout and "PRIVATE - do not share" in checked.stdout


@pytest.mark.slow
def test_12_the_person_at_the_terminal_hears_of_it(spec: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(places / "prefect"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with (places / "answer.json").open("wb") as answer:
        told, code = on_a_terminal(spec, answer.fileno())
    assert code == 0, told
    (line,) = [line for line in told.splitlines() if "PRIVATE" in line]
    assert "`seen`: of its values 68.4% could not be read." in line
    assert shown((places / "answer.json").read_text(encoding="utf-8").replace(str(places), "")) == []

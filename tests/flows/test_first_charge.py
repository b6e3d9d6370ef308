"""Before a data set's first charge: a terminal is shown price, cap and forecast, and asked; a pipe never is."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from privsyn import cli
from privsyn.base.settings import Settings
from privsyn.cli import release_command
from privsyn.cli.release_command import count_public_records, simulate_sizes
from privsyn.ledgers.ledger import Ledger
from tests.support.commands import privsyn, use_no_server
from tests.support.panels import make_panel_spec
from tests.support.releases import FEW
from tests.support.specs import PEOPLE_YAML, make_spec, people

Save = Callable[..., str]


@pytest.fixture
def spec(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(people(300))
    use_no_server(monkeypatch)
    monkeypatch.setenv("PREFECT_HOME", str(places / "prefect"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    path = places / "people.yaml"
    path.write_text(PEOPLE_YAML.replace("delta: 1.0e-9}\ncolumns", "delta: 1.0e-8}\ncolumns"), encoding="utf-8")
    return path


def answered(spec: Path, answer: bytes, *options: str) -> tuple[str, int]:
    """What ``privsyn release`` shows on a terminal where somebody types ``answer`` when asked, and its exit code."""
    here, terminal = pty.openpty()
    command = [sys.executable, "-m", "privsyn.cli", "release", str(spec), *options]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=spec.parent)
    os.close(terminal)
    told, asked = b"", False
    while True:
        try:
            told += os.read(here, 65_536)
        except OSError:  # the last writer is gone
            break
        if b"[y/N]" in told and not asked:
            asked = True
            os.write(here, answer)
    os.close(here)
    return " ".join(told.decode("utf-8", "replace").replace("│", " ").split()), process.wait()


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process take their streams for a terminal."""
    monkeypatch.setattr(release_command, "is_interactive", lambda: True)


def answered_here(spec: Path, answer: str, *options: str) -> tuple[str, int]:
    """What :func:`answered` shows, of a command in this process."""
    done = CliRunner().invoke(cli.app, ["release", str(spec), *options], input=answer)
    return " ".join(done.output.replace("│", " ").split()), done.exit_code


def charged() -> int:
    path = Path(Settings().ledger)
    return len(Ledger(str(path)).entries()) if path.exists() else 0


@pytest.mark.parametrize(
    "answer",
    [*(pytest.param(keys, marks=pytest.mark.slow) for keys in (b"\n", b"\x04")), ""],
    ids=["nothing", "end of input", "no input, here"],
)
@pytest.mark.usefixtures("at_a_terminal")
def test_a_terminal_is_asked_and_a_no_leaves_no_trace(spec: Path, answer: bytes | str) -> None:
    """Here, with the forecast for tables of several sizes; in processes of their own, for one of 300 rows."""
    before = sorted(spec.parent.rglob("*"))
    if isinstance(answer, bytes):
        told, code = answered(spec, answer, "--rows-about", "300")
    else:
        told, code = answered_here(spec, answer)
    assert code == 1
    for words in (
        "epsilon 1 at delta 1e-09",
        "epsilon 2 at delta 1e-08, for all releases of 'people' together",
        "it cannot be changed later",
        "more releases like this one fit",
        "of 2 at delta 1e-08",
        "If the table or a part of it was released under another name",
        "Forecast at epsilon 1",
        "Nothing was read, nothing was charged",
    ):
        assert words in told, words
    assert charged() == 0
    assert [p for p in sorted(spec.parent.rglob("*")) if "__pycache__" not in str(p)] == before


@pytest.mark.usefixtures("at_a_terminal")
@pytest.mark.parametrize("answer", ["y\n", pytest.param(b"y\n", marks=pytest.mark.slow)], ids=["here", "a process"])
def test_a_yes_releases_and_the_second_release_asks_nothing(spec: Path, answer: bytes | str) -> None:
    if isinstance(answer, bytes):
        told, code = answered(spec, answer, "--rows-about", "300")
    else:
        told, code = answered_here(spec, answer, "--rows-about", "300")
    assert code == 0, told
    assert "synthetic rows" in told and "more releases like the last one fit" in told
    assert "of 2 at delta 1e-08" in told and "counted at" not in told
    again, code = answered_here(spec, "n\n", "--fresh")
    assert code == 0 and "[y/N]" not in again


@pytest.mark.usefixtures("at_a_terminal")
def test_a_known_data_set_is_checked_once(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forecast's checks belong to the question: without one, the run alone checks the request."""
    told, code = answered_here(spec, "y\n", "--rows-about", "300")
    assert code == 0, told
    ahead: list[Any] = []
    monkeypatch.setattr(release_command, "look_ahead", ahead.append)
    again, code = answered_here(spec, "")
    assert code == 0, again
    assert ahead == []


@pytest.mark.usefixtures("at_a_terminal")
def test_yes_asks_nothing(spec: Path) -> None:
    told, code = answered_here(spec, "n\n", "--yes")
    assert code == 0 and "[y/N]" not in told and "Forecast" not in told


def test_a_pipe_is_not_asked(spec: Path) -> None:
    done = privsyn("release", spec)
    assert done.exit_code == 0 and "[y/N]" not in done.output and charged()


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, [300, 3_000, 30_000]),
        ({"mechanism": {"synthesis": {"rows": 19_537}}}, [19_537]),
        ({"totals": [{"rows": 19_000, "statement": "published by the registry in 2026"}]}, [19_000]),
    ],
    ids=["nothing", "rows to make", "a known total"],
)
def test_the_forecast_is_of_as_many_rows_as_the_spec_says_in_public(changes: dict[str, Any], rows: list[int]) -> None:
    request = make_spec(FEW, **changes)
    assert [made.rows for made in simulate_sizes(request, None)] == rows
    assert [made.rows for made in simulate_sizes(request, 40)] == [40]


def test_of_linked_rows_as_many_persons_are_counted_as_there_are_at_least() -> None:
    request = make_panel_spec(unit={"person_id": "pid", "max_records": 8}, mechanism={"synthesis": {"rows": 19_537}})
    assert count_public_records(request) == 2_443


def test_a_dry_run_reads_and_writes_nothing(spec: Path) -> None:
    (spec.parent / "people.parquet").write_bytes(b"whoever reads this fails")
    before = sorted(spec.parent.rglob("*"))
    shown = privsyn("release", spec, "--dry-run", "--out", spec.parent / "elsewhere")
    assert shown.exit_code == 0, shown.output
    assert "Forecast at epsilon 1" in shown.stdout and "30,000" in shown.stdout
    assert shown.stderr.strip().endswith("A dry run: nothing was read, nothing was charged.")
    told = json.loads(privsyn("release", spec, "--dry-run", "--rows-about", 500, "--json").stdout)
    assert told["new"] and told["price"]["epsilon"] == 1 and told["cap"] == {"epsilon": 2.0, "delta": 1e-8}
    assert told["counted"]["price"] < 1 and [made["rows"] for made in told["forecasts"]] == [500]
    assert sorted(spec.parent.rglob("*")) == before


def test_a_dry_run_of_a_known_data_set_says_what_would_be_used(spec: Path) -> None:
    assert privsyn("release", spec).exit_code == 0
    entries = charged()
    told = privsyn("release", spec, "--dry-run", "--epsilon", 0.5, "--rows-about", 300)
    shown = " ".join(told.stdout.replace("│", " ").split())
    assert " % used; 3 more releases like the last one fit" in shown and charged() == entries
    assert "more releases like this one fit" in shown and "of 2 at delta 1e-08" in shown
    assert "With about 300 rows, no relation between columns would be measured" in " ".join(told.stdout.split())


def test_a_price_above_the_cap_is_refused_before_anything_is_asked(spec: Path) -> None:
    refused = privsyn("release", spec, "--dry-run", "--epsilon", 3)
    assert refused.exit_code == 3 and "costs more than the whole lifetime cap" in " ".join(refused.stderr.split())


def test_a_mechanism_that_takes_long_is_simulated_only_where_the_rows_are_said(spec: Path) -> None:
    spec.write_text(spec.read_text(encoding="utf-8") + "mechanism: {name: mst}\n", encoding="utf-8")
    shown = privsyn("release", spec, "--dry-run")
    assert "No forecast: the mechanism mst takes long to simulate" in shown.stdout


@pytest.mark.usefixtures("at_a_terminal")
def test_the_question_says_whether_the_table_was_checked(spec: Path) -> None:
    """By a record under the private root, which holds digests only."""
    asked = partial(answered_here, spec, "n\n", "--rows-about", "300")
    assert "There is no record here that" in asked()[0]
    assert privsyn("spec", "check", spec).exit_code == 0
    assert not Settings().private_root.exists()
    table = spec.parent / "people.parquet"
    assert privsyn("spec", "check", spec, "--data", table).exit_code == 0
    assert "was run on this table with this spec" in asked()[0]
    (record,) = (Settings().private_root / "checks").iterdir()
    assert record.stat().st_mode & 0o077 == 0 and set(json.loads(record.read_text())) == {"spec", "files"}
    text = spec.read_text(encoding="utf-8")
    spec.write_text(text.replace("epsilon: 1,", "epsilon: 0.9,"), encoding="utf-8")  # the price is no part of the fit
    assert "was run on this table with this spec" in asked()[0]
    os.utime(table, (1, 1))
    assert "before the spec or the table changed" in asked()[0]
    spec.write_text(text, encoding="utf-8")
    told, code = answered_here(spec, "y\n", "--rows-about", "300")
    assert code == 0, told  # the folder that a check made is no private folder without its key


def test_a_plan_that_measures_no_pair_says_so(spec: Path) -> None:
    shown = " ".join(privsyn("release", spec, "--dry-run", "--rows-about", 300).stdout.replace("│", " ").split())
    assert "No pair of columns will be measured" not in shown
    spec.write_text(spec.read_text(encoding="utf-8") + "mechanism: {name: independent}\n", encoding="utf-8")
    shown = " ".join(privsyn("release", spec, "--dry-run", "--rows-about", 300).stdout.replace("│", " ").split())
    assert "No pair of columns will be measured" in shown

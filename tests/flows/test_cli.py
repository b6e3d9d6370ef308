"""The command line: exit codes, one paragraph an error, and nothing but JSON on standard output."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from privsyn import cli
from privsyn.base.errors import ContractError
from privsyn.base.settings import Settings
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.tables import ENCODED_ROWS, build_code_schema, make_code_profile
from privsyn.engine.step_tables import check_table
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.specs.spec_file import load_spec
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from tests.support.commands import privsyn, use_no_server
from tests.support.releases import read_files, spent
from tests.support.specs import PEOPLE_YAML, people

Save = Callable[..., str]
JSON_KEYS = {"run", "released", "private", "rows", "epsilon", "delta", "rho", "drawn", "budget_left", "seconds"}
SPEC = PEOPLE_YAML.replace("columns:", "synthesis: {iterations: 2}\ncolumns:")


@pytest.fixture
def spec(places: Path, save: Save) -> Path:
    save(people(300))
    path = places / "people.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command without a Prefect server."""
    use_no_server(monkeypatch)


def shown(result: Result) -> str:
    """Standard error as running text; rich breaks lines at the width of the terminal."""
    return running(result.stderr)


def running(text: str) -> str:
    """Text without borders and line breaks."""
    return " ".join(text.replace("│", " ").split())


def test_the_version_is_that_of_the_package() -> None:
    result = privsyn("--version")
    assert (result.exit_code, result.stdout) == (0, f"privsyn {version('privsyn-flows')}\n")


OPENING = "This opens the data set"
"""How the line begins that the first release of a name prints before it runs."""


def refused(result: Result, code: int, *words: str) -> None:
    """The code, one paragraph on standard error that holds the words, and nothing on standard output."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    told = [line for line in result.stderr.strip().splitlines() if not line.startswith(OPENING)]
    assert len(told) == 1 and told[0].startswith("privsyn: ")
    assert "Traceback" not in result.output
    for word in words:
        assert word in shown(result)


def test_json_is_one_object_and_nothing_else(direct: None, spec: Path) -> None:
    result = privsyn("release", spec, "--json")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 1
    answer = json.loads(lines[0])
    assert set(answer) == JSON_KEYS
    assert answer["epsilon"] == 1.0
    assert answer["rho"] == pytest.approx(float(convert_epsilon_to_rho(1.0, 1e-9, "tight")))
    assert pq.read_table(Path(answer["released"]) / "synthetic.parquet").num_rows == answer["rows"]
    assert "synthetic rows" in shown(result)
    # The second time costs nothing and says so.
    cost = spent()
    again = privsyn("release", spec, "--json")
    assert answer["drawn"] == ["one_way_marginals", "indif_scores", "measure_marginals"]
    assert {**json.loads(again.stdout), "seconds": 0} == {**answer, "seconds": 0, "drawn": []}
    assert "no noise was drawn" in shown(again)
    assert spent() == cost
    other = json.loads(privsyn("release", spec, "--json", "--seed-synthesis", 7).stdout)
    assert other["run"] != answer["run"]
    assert spent() == cost
    assert "noise drawn for" in running(privsyn("release", spec, "--fresh").stdout)
    assert spent() == 2 * cost


def test_without_json_the_result_is_on_standard_output_and_progress_is_not(direct: None, spec: Path) -> None:
    result = privsyn("release", spec)
    assert result.exit_code == 0
    used = (" % used; ", "more releases like the last one fit")
    for words in ("Released", "(1, 1e-09)-differential privacy", "(publish)", "keep: private", *used):
        assert words in running(result.stdout), words
        assert words not in shown(result), words
    assert "Encode (transform)" in result.stderr and OPENING in result.stderr
    assert "Encode (transform)" not in result.stdout and OPENING not in result.stdout


def test_options_replace_the_specs_values(direct: None, spec: Path, places: Path, save: Save) -> None:
    elsewhere = save(people(50), "elsewhere.parquet")
    (places / "people.parquet").unlink()
    out = places / "other"
    result = privsyn("release", spec, "--data", elsewhere, "--out", out, "--epsilon", 0.5, "--delta", 1e-10, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["epsilon"], answer["delta"]) == (0.5, 1e-10)
    assert Path(answer["released"]).is_relative_to(out / "released")
    assert Path(answer["private"]).is_relative_to(out / "private")
    assert Settings().out == places / "out"  # the option is this command's, and of nothing that it starts
    assert answer["rho"] == pytest.approx(float(convert_epsilon_to_rho(0.5, 1e-10, "tight")))


def test_a_refused_budget_is_3_and_spends_nothing(direct: None, spec: Path, places: Path) -> None:
    refused(privsyn("release", spec, "--epsilon", 5), 3, "budget", "cap", "nothing was spent", "epsilon")
    assert spent() == 0
    assert list(Settings().released_root.iterdir()) == []
    (places / "people.parquet").unlink()  # the ledger says no before the data is looked for
    refused(privsyn("release", spec, "--epsilon", 5, "--json"), 3, "budget")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epsilon", 0), ("privacy.epsilon", "0")),
        (("--epsilon", -1), ("privacy.epsilon",)),
        (("--epsilon", "nan"), ("privacy.epsilon",)),
        (("--delta", 1), ("privacy.delta",)),
        (("--seed-synthesis", -1), ("synthesis.seed",)),
        (("--data", "nowhere.parquet"), ("nowhere.parquet",)),
        (("--data", ""), ("--data", "empty")),
        (("--out", " "), ("--out", "empty")),
        (("--out", "people.yaml/x"), ("--out", "people.yaml/x")),
    ],
)
def test_wrong_requests_are_2_and_name_the_field(
    direct: None,
    spec: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(spec.parent)
    refused(privsyn("release", spec, *arguments), 2, *words)
    assert spent() == 0


def test_a_wrong_setting_is_2_and_names_the_variable(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_THREADS", "abc")
    for command in (("release", spec), ("ledger", "show")):
        refused(privsyn(*command), 2, "PRIVSYN_THREADS", "'abc'", "integer")


@pytest.mark.slow
def test_a_release_of_no_rows_warns(direct: None, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cli.release._run_here

    def without_rows(proposal: Any) -> Any:
        return run(proposal).model_copy(update={"rows": 0})

    monkeypatch.setattr(cli.release, "_run_here", without_rows)
    assert "the noisy total is zero, since epsilon 1 is too small" in shown(privsyn("release", spec))
    spec.write_text(SPEC.replace("iterations: 2", "rows: 0"), encoding="utf-8")
    assert "noisy total is zero" not in shown(privsyn("release", spec))


def test_an_unknown_spec_file_is_2(spec: Path) -> None:
    for command in (("release",), ("spec", "check")):
        refused(privsyn(*command, spec.parent / "missing.yaml"), 2, "missing.yaml")


def test_an_unexpected_error_is_1_without_its_text(direct: None, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(proposal: object) -> None:
        raise ZeroDivisionError("CANARY-VALUE")

    monkeypatch.setattr(cli.release, "_run_here", fail)
    result = privsyn("release", spec)
    refused(result, 1, "ZeroDivisionError", "--debug", "nothing is charged twice")
    assert "CANARY" not in result.output
    shown_whole = privsyn("release", spec, "--debug")
    assert shown_whole.exit_code == 1
    assert "Traceback" in shown_whole.stderr
    assert "ZeroDivisionError: CANARY-VALUE" in shown_whole.stderr


def test_sigterm_ends_a_run_as_an_interrupt_does(direct: None, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(proposal: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    monkeypatch.setattr(cli.release, "_run_here", stop)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        result = privsyn("release", spec)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 1
    assert "stopped. Run the same command again" in shown(result)

    def interrupt(proposal: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.release, "_run_here", interrupt)
    result = privsyn("release", spec)
    assert result.exit_code == 1 and "stopped. Run the same command again" in shown(result)


def test_a_named_server_that_does_not_answer_is_2_and_nothing_is_reserved(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")  # and here, where Prefect is loaded already:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        result = privsyn("release", spec)
    assert result.exit_code == 2, result.output
    assert "PREFECT_API_URL: no Prefect server answers at 'http://127.0.0.1:9/api'. Correct the address" in shown(
        result
    )
    assert spent() == 0


def test_a_failing_step_is_1(direct: None, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("CANARY-VALUE")

    monkeypatch.setattr("privsyn.tasks.steps.select_marginals.select", fail)
    result = privsyn("release", spec)
    *progress, refusal = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (1, "")
    assert refusal.startswith("privsyn: ")
    assert "select_pairs" in refusal and "ValueError" in refusal
    assert progress[0].startswith("Running in this process")
    assert progress[1].startswith(OPENING)
    assert progress[2:] == [step.label for step in STEPS[:6]]
    assert "CANARY" not in result.output
    assert "Traceback" not in result.output
    monkeypatch.undo()


def test_a_large_epsilon_warns(direct: None, spec: Path) -> None:
    spec.write_text(SPEC.replace("budget: {epsilon: 2", "budget: {epsilon: 50"), encoding="utf-8")
    result = privsyn("release", spec, "--epsilon", 11)
    assert result.exit_code == 0
    assert "Warning: epsilon 11 is above 10" in shown(result)
    assert "Warning" not in privsyn("release", spec, "--epsilon", 10).stderr


def test_a_draft_is_filled_checked_and_released(direct: None, places: Path, save: Save) -> None:
    data, draft = save(people(300)), places / "draft.yaml"
    result = privsyn("spec", "draft", data, "--out", draft, "--dataset", "people")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "TODOs left: unit budget min and max in columns of age" in shown(result)
    refused(privsyn("spec", "check", draft), 2, "TODO", "unit")
    refused(privsyn("spec", "draft", data, "--out", draft), 2, "exists already")
    head = draft.read_text(encoding="utf-8").partition("columns:")[0]
    head = head.replace("unit: TODO", "unit: {records_per_person: 1}")
    head = head.replace("budget: TODO", "budget: {epsilon: 2, delta: 1.0e-9}")
    draft.write_text(head + "columns:" + SPEC.partition("columns:")[2], encoding="utf-8")
    before = read_files(places)
    for arguments in ((), ("--data", data)):
        checked = privsyn("spec", "check", draft, *arguments)
        assert checked.exit_code == 0, checked.output
        assert "age" in running(checked.stdout)
        assert ("PRIVATE - do not share" in checked.stdout) == bool(arguments)
        assert bool(checked.stderr) == bool(arguments)
        assert all(line.startswith("PRIVATE: ") for line in checked.stderr.splitlines())
    kept = {name: content for name, content in read_files(places).items() if "/private/checks/" not in name}
    assert kept == before  # checking spends nothing, and writes nothing but that the table was checked
    assert load_spec(draft).dataset == "people"
    assert privsyn("release", draft).exit_code == 0


def test_the_ledger_of_nobody(places: Path) -> None:
    nowhere = privsyn("ledger", "show")
    assert nowhere.exit_code == 0
    assert "does not exist yet" in nowhere.stdout
    empty = {"verified": True, "problems": [], "datasets": []}
    assert json.loads(privsyn("ledger", "show", "--json").stdout) == empty
    for arguments in ((), ("--json",)):
        refused(privsyn("ledger", "show", "strangers", *arguments), 2, "strangers", "none yet")
    assert not Path(Settings().ledger).exists()  # looking makes nothing
    Ledger(Settings().ledger)
    assert "is empty" in privsyn("ledger", "show").stdout
    assert json.loads(privsyn("ledger", "show", "--json").stdout) == empty


def test_the_ledger_of_a_data_set(direct: None, spec: Path) -> None:
    run = json.loads(privsyn("release", spec, "--json").stdout)["run"]
    everything, one = privsyn("ledger", "show"), privsyn("ledger", "show", "people")
    assert everything.exit_code == one.exit_code == 0
    assert everything.stderr == one.stderr == ""
    assert "people" in everything.stdout
    assert "Verified" in one.stdout
    assert one.stdout.count(" reserve ") == one.stdout.count(" spent ") == 3
    refused(privsyn("ledger", "show", "strangers"), 2, "strangers", "people")
    whole = json.loads(privsyn("ledger", "show", "people", "--json").stdout)
    assert whole["verified"] is True
    assert whole["problems"] == []
    (answer,) = whole["datasets"]
    assert answer["dataset"] == "people"
    assert answer["spent"]["rho"] == str(convert_epsilon_to_rho(1.0, 1e-9, "tight"))
    assert [entry["event"] for entry in answer["entries"]].count("spent") == 3
    assert {entry["run"] for entry in answer["entries"]} == {run}
    # A ledger that does not add up is 1.
    with closing(sqlite3.connect(Settings().ledger)) as database, database:
        database.execute("UPDATE ledger SET entries = 5")
    for arguments in ((), ("people",)):
        result = privsyn("ledger", "show", *arguments)
        assert result.exit_code == 1
        assert "PROBLEM" in result.stdout
        assert "Verified" not in result.stdout
    result = privsyn("ledger", "show", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["verified"] is False
    assert answer["problems"]
    assert answer["datasets"]


def run_whole(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command as people run it, who have configured no Prefect server."""
    return subprocess.run(
        [sys.executable, "-m", "privsyn.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PREFECT_HOME": str(Path(os.environ["PRIVSYN_OUT"]).parent / "prefect")},
    )


@pytest.mark.parametrize(
    ("first", "says_first"),
    [
        pytest.param((), "Running in this process", id="here"),
        pytest.param(("--prefect",), "Starting Prefect", id="with Prefect", marks=pytest.mark.slow),
    ],
)
def test_the_command_itself(spec: Path, first: tuple[str, ...], says_first: str) -> None:
    """In the terminal's process, or as a Prefect flow with a server of its own and then here, which finds it."""
    for arguments, says in ((first, says_first), ((), "no noise was drawn"))[: 1 + len(first)]:
        result = run_whole("release", spec, "--json", *arguments)
        assert result.returncode == 0, result.stderr
        assert len(result.stdout.splitlines()) == 1
        assert set(json.loads(result.stdout)) == JSON_KEYS
        assert says in " ".join(result.stderr.replace("│", " ").split())
        assert "Traceback" not in result.stderr
        assert spent() == convert_epsilon_to_rho(1.0, 1e-9, "tight")


@pytest.mark.slow
def test_a_broken_wide_table_names_its_own_column() -> None:
    domain = Domain(("age", "sex"), (3, 2))
    schema = build_code_schema(domain)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(([1, 7], [1, 0]), schema, strict=True)], schema=schema
    )
    with pytest.raises(ContractError, match="age: outside") as refusal:
        check_table(ENCODED_ROWS, make_code_profile([rows], domain))
    assert [failure["column"] for failure in refusal.value.failures] == ["age"]
    assert "7" not in str(refusal.value)

"""More than a thousand wrong requests: each is refused with exit code 2 and one paragraph that names what is wrong.

None spends anything, leaves anything under released/, or starts Prefect.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from privsyn import cli
from privsyn.base.settings import Settings
from privsyn.engine import step_list
from privsyn.ledgers.ledger import Ledger
from privsyn.server import temporary_server
from tests.support.bad_requests import COLUMNS, SPEC, Bad, all_bad, changed, csv, write
from tests.support.examples import keep_first

BAD = all_bad()
PARTS = 8
LONGEST = 1_000
"""Characters of a refusal; the longest ones list the fields of the spec."""


STARTING = "Starting Prefect ...\n"


def refusal(request: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Exit code and standard error of ``privsyn release``, without the line that Prefect starts.

    Nothing may be on standard output.
    """
    with pytest.raises(SystemExit) as ended:
        get_command(cli.app)(["release", str(request), *options], prog_name="privsyn")
    shown = capsys.readouterr()
    assert shown.out == ""
    return int(str(ended.value.code)), shown.err.removeprefix(STARTING)


@pytest.fixture
def no_start(places: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Whatever gets as far as starting Prefect, or as running a step in this process, fails."""
    command = get_command(cli.app)  # once: it is most of the time of a refusal
    monkeypatch.setattr(sys.modules[__name__], "get_command", lambda app: command)

    def start(*_: object) -> None:
        raise AssertionError("the release would have been started")

    monkeypatch.setattr(temporary_server, "start_temporary_server", start)
    monkeypatch.setattr(step_list, "run_steps", start)
    return Ledger(Settings().ledger)


def faults(bad: Bad, code: int, shown: str) -> list[str]:
    """What is wrong with a refusal itself."""
    found = [f"exit code {code}"] if code != 2 else []
    found += [f"no word of {word!r}" for word in bad.words if word not in shown]
    if not shown.startswith("privsyn: ") or not shown.rstrip("\n").isprintable() or not shown.endswith(".\n"):
        found.append("not one paragraph")
    if len(shown) > LONGEST or "Traceback" in shown or "pydantic" in shown:
        found.append("not for people")
    return found


def test_there_are_a_thousand() -> None:
    assert len({bad.name for bad in BAD}) >= 1_000


@pytest.mark.parametrize(
    ("options", "part", "of"),
    [
        *(pytest.param((), n, PARTS, id=f"here-{n}", marks=[pytest.mark.slow] if n else []) for n in range(PARTS)),
        pytest.param(("--prefect",), 0, 30, marks=pytest.mark.slow),
    ],
)
def test_wrong_requests_are_refused_in_words_and_spend_nothing(
    no_start: Ledger, places: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], part: int, of: int
) -> None:
    """All of them in this process, every thirtieth before a server is started: both look by one function."""
    before, wrong = no_start.export(), {}
    for bad in BAD[part::of]:
        folder = places / "request"
        folder.mkdir()
        bad.build(folder)
        code, shown = refusal(folder / "spec.yaml", capsys, *options)
        if found := faults(bad, code, shown):
            wrong[bad.name[:80]] = [*found, shown[:300]]
        shutil.rmtree(folder)
    assert wrong == {}
    assert no_start.export() == before
    assert no_start.summary() == []  # not even the data set's name
    out = Settings()
    assert list(out.released_root.iterdir()) == []
    kept = [p.name for p in out.private_root.rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert set(kept) <= {".key", "key-check"}


@pytest.mark.parametrize("options", [(), ("--prefect",)], ids=["here", "with Prefect"])
def test_what_is_right_gets_through(
    no_start: Ledger, places: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """The spec that all wrong ones are made from: the refusals above have the reasons that they name."""
    write(places)
    code, shown = refusal(places / "spec.yaml", capsys, *options)
    assert (code, "AssertionError" in shown) == (1, True)


def test_a_checker_of_refusals_that_finds_faults() -> None:
    bad = Bad("x", write, ("columns.age",))
    good = "privsyn: columns.age: is wrong. Mend it.\n"
    assert faults(bad, 2, good) == []
    for code, shown in ((1, good), (2, good.replace("age", "pay")), (2, good + good), (2, "wrong.\n"), (2, good * 40)):
        assert faults(bad, code, shown)


def test_a_refusal_comes_before_prefect_is_even_loaded(places: Path) -> None:
    write(places, table=csv([], ["age"]))
    program = (
        "import sys; from privsyn.cli import app\n"
        "try: app(['release', sys.argv[1]])\n"
        "except SystemExit as end: print(end.code, 'prefect' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(places / "spec.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.split() == ["2", "False"]
    assert "which t.csv does not have" in done.stderr


def test_a_cell_of_a_million_characters_is_a_value_like_any_other(
    no_start: Ledger, places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the rows it fails nothing, because nothing about a value may; it is unlisted, or cannot be parsed."""
    huge = ["9" * 10**6] * 5 + ["p"]
    write(places, changed(("synthesis.rows", 5)), csv([huge, huge]))
    code, shown = refusal(places / "spec.yaml", capsys)
    assert (code, "AssertionError" in shown) == (1, True)
    assert set(COLUMNS) == set(SPEC["columns"])


def memory_of(program: str, *arguments: str) -> tuple[int, str]:
    """Peak memory (MiB) of a Python program, and what it printed."""
    measured = program + "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    command = [sys.executable, "-c", measured, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    *said, peak = done.stdout.split("\n")[:-1]
    return int(peak), "\n".join(said)


LOAD = """
import sys
from pathlib import Path
from privsyn.base.errors import RequestError
from privsyn.specs.spec_file import load_spec
try: load_spec(Path(sys.argv[1]))
except RequestError as error: print(error)
"""


@pytest.fixture(scope="module")
def memory_of_a_plain_spec(tmp_path_factory: pytest.TempPathFactory) -> int:
    folder = tmp_path_factory.mktemp("plain")
    write(folder)
    peak, nothing = memory_of(LOAD, str(folder / "spec.yaml"))
    assert nothing == ""
    return peak


@pytest.mark.parametrize("name", keep_first(["laughs", "itself", "deep list", "huge number"]))
def test_a_bomb_takes_little_memory(places: Path, memory_of_a_plain_spec: int, name: str) -> None:
    (bomb,) = (bad for bad in BAD if bad.name == f"yaml {name}")
    bomb.build(places)
    peak, said = memory_of(LOAD, str(places / "spec.yaml"))
    assert "spec.yaml" in said
    assert peak < memory_of_a_plain_spec + 200

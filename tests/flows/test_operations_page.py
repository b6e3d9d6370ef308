"""Every command of the pages in docs/operations, run.

How to write a section of such a page: put its commands into ```sh blocks.  Each section (``##``) is run by itself,
its blocks one after the other in one bash that ends at the first failing command, in the root of a fresh copy
of the repository with a HOME, ledger and output folder of its own.  There

- ``people.yaml`` and ``people.parquet`` are a small spec and its table;
- where a block has ``$RUN`` or ``privsyn ledger``, that table has been released, and RUN is the run's name;
- where a block calls ``prefect`` or ``make deploy`` and none starts a server, one with worker and deployments runs;
- 4200 stands for the test's own port, DATABASE for a database in a PostgreSQL server of the tests;
- a line that ends with ``# keep it running`` goes on in the background, from when it says how to stop it (``Ctrl-C``)
  until the end of the section, where it is interrupted so and must stop;
- a block whose first line begins with ``# not run by the tests:`` and the reason is checked as text.

Sections with a server, of Prefect or of Dask, are marked `slow`.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.specs.spec_file import load_spec
from tests.support import postgres
from tests.support.commands import privsyn
from tests.support.places import ROOT
from tests.support.prefect_ui import find_free_port
from tests.support.releases import release_in_process
from tests.support.specs import COLUMNS, make_spec, people

PAGES = sorted((ROOT / "docs" / "operations").glob("*.md"))
DATABASE = "postgresql://privsyn:PASSWORD@db.example.org/privsyn"
NOT_RUN = "# not run by the tests:"
KEEP = "# keep it running"

LINKED = ("data_contracts", "flows", "tasks")
"""Linked, not copied, so that compiled kernels are found again."""
COPIED = (
    "deployments",
    "docs",
    "examples",
    "Makefile",
    "README.md",
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-uv.lock",
    "pyproject.toml",
)

PRELUDE = """set -euo pipefail
kept=()
keep() {
  local log="kept-${#kept[@]}.log"
  setsid "$@" > "$log" 2>&1 &
  kept=("$!" "${kept[@]}")
  until grep -q 'Ctrl-C' "$log"; do
    kill -0 "${kept[0]}" || { cat "$log"; exit 1; }
    sleep 0.2
  done
}
stop() {
  status=$?
  for pid in "${kept[@]}"; do kill -INT -- "-$pid"; wait "$pid" || true; done
  for log in kept-*.log; do
    [ ! -e "$log" ] || grep -q 'privsyn: stopped.' "$log" || { cat "$log"; status=99; }
  done
  exit "$status"
}
trap stop EXIT
"""


def sections(pages: list[str]) -> dict[str, list[str]]:
    """Heading -> its sh blocks; no heading stands twice."""
    parts = [part for page in pages for part in re.split(r"^## (.+)$", page, flags=re.M)[1:]]
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(texts) == len(parts) // 2
    return {name: find_blocks(text) for name, text in texts.items()}


def find_blocks(text: str) -> list[str]:
    """The sh blocks, also those of a numbered list, which are indented."""
    return [dedent(block) for _, block in re.findall(r"^( *)```sh\n(.*?)^\1```$", text, re.S | re.M)]


def is_run(block: str) -> bool:
    return not block.startswith(NOT_RUN)


BLOCKS = sections([page.read_text(encoding="utf-8") for page in PAGES])
RUN = {name: [b for b in blocks if is_run(b)] for name, blocks in BLOCKS.items() if any(map(is_run, blocks))}
LONG = {
    "Reproduce a release",
    "Keep and throw away",
    "The ledger refuses",
    "Watch it in the UI",
    "Without a checkout",
    "Upgrade",
    "What a release will take",
    "A name is a budget",
    "One folder pays",
    "Tables of a database",
    "Back up and recover a ledger in PostgreSQL",
    "Files and descriptions",
    "Back up and recover the ledger",
    "Show and verify",
}
"""Sections whose commands take longest."""

TEXT_ONLY = [b for blocks in BLOCKS.values() for b in blocks if not is_run(b)]


def starts_server(blocks: list[str]) -> bool:
    return any(re.search(rf"(make|privsyn) server.*{KEEP}", b) for b in blocks)


def uses_server(blocks: list[str]) -> bool:
    return starts_server(blocks) or any(re.search(r"\bprefect |make deploy|privsyn deploy", b) for b in blocks)


def starts_processes(blocks: list[str]) -> bool:
    return uses_server(blocks) or any("dask" in b for b in blocks)


def needs_release(blocks: list[str]) -> bool:
    return any(re.search(r"\$RUN|privsyn ledger", b) for b in blocks) and not starts_server(blocks)


def release_in(home: Path, environment: dict[str, str], database: str) -> str:
    """Release people.yaml as a person there would, but in this process, which is warm; the run's name."""
    with pytest.MonkeyPatch.context() as there:
        for name in os.environ.keys() - environment.keys():
            there.delenv(name)
        for name, value in environment.items():
            there.setenv(name, value)
        if database:
            there.setenv("PRIVSYN_DATABASE_URL", database)
        there.chdir(home)
        return release_in_process(load_spec(Path("people.yaml")), Settings()).run


def script(blocks: list[str], port: int, database: str = "", run: str = "") -> str:
    """One program of a section's blocks; ``run``: of the release that is there."""
    lines = [PRELUDE]
    if run:
        lines.append(f"RUN={run}")
    if uses_server(blocks) and not starts_server(blocks):
        lines += ["keep privsyn server", "privsyn deploy"]
    for line in "\n".join(blocks).splitlines():
        kept = line.rstrip().removesuffix(KEEP)
        lines.append(line if kept == line.rstrip() else f"keep env {kept.rstrip()}")
    return "\n".join(lines).replace(DATABASE, database).replace("4200", str(port)) + "\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The root of a copy of the repository, with an environment, a spec and a table."""
    for name in LINKED:
        (tmp_path / name).symlink_to(ROOT / name)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("*.parquet", "__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    environment = tmp_path / ".venv"
    environment.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith("."):
            (environment / entry.name).symlink_to(entry)
    for stamp in (".demo", ".dev"):
        (environment / stamp).touch()
    (tmp_path / "home").mkdir()
    pq.write_table(people(600), tmp_path / "people.parquet")
    (tmp_path / "people.yaml").write_text(make_spec(COLUMNS).model_dump_json(exclude_defaults=True))  # JSON is YAML
    return tmp_path


def variables(home: Path, port: int) -> dict[str, str]:
    ours = ("PRIVSYN_", "PREFECT_", "XDG_", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS", "PYTEST", "VENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    programs = [home / ".venv" / "bin", *filter(None, [postgres.programs()]), kept.get("PATH", os.defpath)]
    path = os.pathsep.join(map(str, programs))
    return {**kept, "HOME": str(home / "home"), "PATH": path, "PREFECT_SERVER_API_PORT": str(port)}


def run(home: Path, blocks: list[str], database: str = "") -> subprocess.CompletedProcess[str]:
    port = find_free_port()
    environment = variables(home, port)
    name = release_in(home, environment, database) if needs_release(blocks) else ""
    done = subprocess.run(
        ["bash", "-c", script(blocks, port, database, name)],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
    )
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "a server is left"
    return done


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in LONG or starts_processes(b) else []) for n, b in RUN.items()],
)
def test_the_commands_of_a_section_run(name: str, home: Path, request: pytest.FixtureRequest) -> None:
    needs_database = any(DATABASE in b for b in RUN[name])
    database = str(request.getfixturevalue("postgres_database")) if needs_database else ""
    done = run(home, RUN[name], database)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("block", TEXT_ONLY, ids=lambda b: b.splitlines()[1][:40])
def test_what_is_not_run_is_right_as_text(block: str) -> None:
    reason, *lines = block.splitlines()
    assert len(reason) > len(NOT_RUN) + 10
    subprocess.run(["bash", "-n", "-c", block], check=True, capture_output=True)
    text = "\n".join(lines)
    for path in re.findall(r"(?<![\w/])((?:deployments|examples|docs|flows)/[\w./-]+|constraints\.txt)", text):
        assert (ROOT / path).is_file(), path
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extras in re.findall(r"-e '\.\[(.+?)\]'", text):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for command in re.findall(r"\bprivsyn ([a-z]+)", text):
        assert privsyn(command, "--help").exit_code == 0, command


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_named_in_the_text_exist(page: Path) -> None:
    named = re.findall(r"`privsyn ([a-z]+(?: [a-z]+)?)", page.read_text(encoding="utf-8"))
    for words in {tuple(command.split()) for command in named}:
        taken = words if words[0] in ("ledger", "spec") else words[:1]
        assert privsyn(*taken, "--help").exit_code == 0, words


PREFECTS = ("Crashed", "AwaitingRetry")
"""States that Prefect names."""


def test_symptoms_are_what_the_program_says() -> None:
    """What stands in quotation marks in a first column is a part of a message; N and dots stand for what differs."""
    page = (ROOT / "docs" / "operations" / "three-in-the-morning.md").read_text(encoding="utf-8")
    modules = [p for folder in ("privsyn", "flows") for p in (ROOT / folder).rglob("*.py")]
    source = re.sub(r'"\s*\n\s*f?"', "", "\n".join(p.read_text(encoding="utf-8") for p in modules))
    quoted = [text for row in re.findall(r"^\|(.+?)\|", page, re.M) for text in re.findall(r'"(.+?)"', row)]
    assert len(quoted) >= 12
    for text in quoted:
        for part in re.split(r"`\w+`| N\b|\.\.\.", text):
            assert part.strip() in source, text
    states = re.findall(r"state `(\w+)`", page)
    assert [s for s in states if f'"{s}"' not in source and s not in PREFECTS] == []


def test_a_failing_command_fails_and_what_was_kept_is_stopped(home: Path) -> None:
    assert run(home, ["true\n", "false\n", "true\n"]).returncode == 1
    assert run(home, ['test -n "$UNSET"\n']).returncode != 0
    assert run(home, [f"false   {KEEP}\n"]).returncode == 1

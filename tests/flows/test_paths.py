"""Paths that cannot be opened, written or named, and variables that hold none: one sentence, exit code 2, no charge."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from privsyn.base.errors import LedgerError
from privsyn.cli import common
from privsyn.ledgers.ledger import Ledger
from tests.flows.test_cli import SPEC, Save, refused
from tests.support.commands import privsyn
from tests.support.specs import people

LONG = "x" * 300
NOBODY = "~nosuchuser/x"
FOREIGN = os.fsdecode(b"/o\xff")


@pytest.fixture
def ledger(places: Path) -> Path:
    Ledger(places / "ledger.sqlite")
    return places / "ledger.sqlite"


@pytest.fixture
def spec(places: Path, save: Save) -> Path:
    save(people(50))
    (places / "people.yaml").write_text(SPEC, encoding="utf-8")
    return places / "people.yaml"


@pytest.mark.parametrize(
    "command",
    [
        ["rerun", LONG],
        ["formats", LONG, "--to", "csv"],
        ["ledger", "verify", "--out", f"/{LONG}"],
        ["ledger", "backup", f"/{LONG}"],
        ["spec", "draft", "people.csv", "-o", f"/{LONG}"],
    ],
)
def test_a_name_that_is_too_long_is_said(ledger: Path, command: list[str]) -> None:
    refused(privsyn(*command), 2, "File name too long", "xxx")


def test_a_folder_without_permission_is_said(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, for whom every folder is open."""

    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", closed)
    for command in (["rerun", "/closed/run"], ["formats", "/closed/run", "--to", "csv"]):
        refused(privsyn(*command), 2, "/closed/run", "cannot be opened or written: Permission denied", "permissions")


def test_a_full_disk_is_no_wrong_path() -> None:
    assert common._make_unexpected_error(OSError(28, "No space left on device", "/x")).exit_code == 1
    assert common._make_unexpected_error(OSError(5, "Input/output error", "/x")).exit_code == 1
    assert common._make_unexpected_error(OSError("a lock")).exit_code == 1


@pytest.mark.parametrize(
    "variable, command, field",
    [
        (None, ["rerun", NOBODY], "RUN:"),
        (None, ["evaluate", NOBODY], "RELEASE:"),
        (None, ["formats", NOBODY, "--to", "csv"], "RELEASE:"),
        ("PRIVSYN_LEDGER", ["ledger", "show"], "PRIVSYN_LEDGER:"),
        ("PRIVSYN_OUT", ["rerun", "run"], "PRIVSYN_OUT:"),
        ("PRIVSYN_RELEASED", ["rerun", "run"], "PRIVSYN_RELEASED:"),
    ],
)
def test_the_home_of_a_user_who_is_not_known(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, command: list[str], field: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, NOBODY)
    refused(privsyn(*command), 2, field, "'~nosuchuser/x'", "Write the folder's whole path")


def test_a_spec_whose_data_is_in_such_a_home(spec: Path) -> None:
    spec.write_text(SPEC.replace("people.parquet", NOBODY), encoding="utf-8")
    refused(privsyn("release", spec), 2, "data:", "Write the folder's whole path")


def test_a_port_that_is_no_number(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", "postgresql://u@h:port/db")
    refused(privsyn("ledger", "show"), 2, "PRIVSYN_LEDGER: this is not a database URL")


def test_a_ledger_with_a_damaged_byte_in_its_schema(ledger: Path) -> None:
    content = ledger.read_bytes()
    ledger.write_bytes(content.replace(b"CREATE TABLE entries", b"CREATE TABLE \xffntries", 1))
    with pytest.raises(LedgerError, match="is damaged or not a ledger"):
        Ledger(ledger).verify()
    refused(privsyn("ledger", "show"), 1, "is damaged or not a ledger")


def test_a_wrong_variable_is_said_with_debug_too(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_THREADS", "abc")
    found = privsyn("ledger", "show", "--debug")
    assert found.exit_code == 2
    assert found.stderr.strip().splitlines()[-1].startswith("privsyn: PRIVSYN_THREADS: 'abc' is not valid")


@pytest.mark.parametrize("private", [False, True])
def test_an_output_folder_on_a_read_only_file_system(
    spec: Path, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    out = spec.parent / "there"
    (out / "private" if private else out).mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode, access=os.access: mode != os.W_OK and access(path, mode))
    refused(privsyn("release", spec, "--out", out), 2, "--out: the folder", "cannot be written", str(out))
    assert [p.name for p in out.iterdir()] == (["private"] if private else [])


def test_a_backup_that_cannot_be_written_names_the_file_that_was_asked_for(ledger: Path) -> None:
    found = privsyn("ledger", "backup", "/nonexistent/x")
    refused(found, 2, "FILE: cannot write /nonexistent/x: No such file or directory")
    assert ".part" not in found.output


@pytest.mark.parametrize("epsilon", ["1e-300", "1,1e-300"])
def test_a_comparison_at_an_epsilon_that_cannot_be_accounted(spec: Path, epsilon: str) -> None:
    found = privsyn("compare", spec, "--epsilons", epsilon)
    refused(found, 2, "--epsilons: epsilon 1e-300 with delta 1e-09 cannot be accounted")


def test_names_that_are_not_utf_8_are_refused_before_anything_is_reserved(
    spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(privsyn("release", spec, "--out", str(spec.parent) + FOREIGN), 2, "--out:", "not UTF-8 text", "Rename")
    folder = spec.parent / "tables"
    folder.mkdir()
    (folder / os.fsdecode(b"a\xff.csv")).write_text("age\n1\n")
    refused(privsyn("release", spec, "--data", folder), 2, "data:", "not UTF-8 text", "Rename the file")
    for variable in ("PRIVSYN_OUT", "PRIVSYN_LEDGER"):
        with monkeypatch.context() as environment:
            environment.setenv(variable, str(spec.parent) + FOREIGN)
            refused(privsyn("release", spec), 2, f"{variable}:", "not UTF-8 text")
    ledger = spec.parent / "ledger.sqlite"
    if ledger.exists():
        with closing(sqlite3.connect(ledger)) as connection:
            assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)

"""Bug class 23: the budget's name is chosen by the spender.

A table that was released under one name is refused under another, whole or as one of the files of a folder, unless
somebody states why; the ledger keeps the reason.

It does not see the same people in another file or source: a table is known by its fingerprint, and an exported file has
another one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.api.ledger import LedgerView
from privsyn.base.errors import BudgetRefusedError, PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.engine import open_run
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers import known_tables
from privsyn.ledgers.ledger import Ledger
from tests.support.commands import privsyn, use_no_server
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.releases import few, run
from tests.support.specs import PEOPLE_YAML, people

REFUSED = r"^dataset: .* was released as 'people', and 'people_b' would be a second lifetime budget"
CAP = {"epsilon": 1.0, "delta": 1e-9}


@pytest.fixture
def exhausted(kept: Kept, places: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of a spec whose data set has nothing left."""
    data = kept.begin(monkeypatch) / "people.parquet"
    pq.write_table(people(200), data)
    spec = few(str(data), budget=CAP)
    kept.once(lambda: run(spec))
    with pytest.raises(BudgetRefusedError):
        run(spec, fresh=True)
    return {"data": spec.data, "budget": CAP}


def refused_as_it_is(spec: Any, **how: Any) -> None:
    """Refused before a look; nothing is charged, and the name has no cap yet."""
    before = Ledger(Settings().ledger).export()
    with pytest.raises(RequestError, match=REFUSED):
        run(spec, **how)
    assert Ledger(Settings().ledger).export() == before
    assert Ledger(Settings().ledger).summary("people_b") == []


def test_23_a_new_name_for_the_same_table_is_refused(
    exhausted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(ReleaseStep, "read_rows", lambda *arguments: looks.append(1))
    refused_as_it_is(few(**exhausted, dataset="people_b"))
    assert looks == []


def test_23_mutant_names_that_are_not_compared(exhausted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: what was before; the exhausted table is released again under a whole new cap."""
    monkeypatch.setattr(open_run, "find_names", lambda *arguments: frozenset())
    monkeypatch.setattr(known_tables, "_find_matches", lambda *arguments: [])
    assert run(few(**exhausted, dataset="people_b")).drawn


def test_23_a_file_of_the_table_is_known_too(exhausted: dict[str, Any], places: Path) -> None:
    """A folder with the file and another one in it, and then one file of a folder that was released."""
    folder = places / "folder"
    folder.mkdir()
    shutil.copy(exhausted["data"], folder / "1.parquet")
    pq.write_table(people(50, seed=1), folder / "2.parquet")
    other = {**exhausted, "data": str(folder)}
    refused_as_it_is(few(**other, dataset="people_b"))
    run(few(**{**other, "budget": {"epsilon": 2.0, "delta": 1e-9}}, dataset="folder"), new_dataset="a test")
    second = {**exhausted, "data": str(folder / "2.parquet")}
    with pytest.raises(RequestError, match="was released as 'folder'"):
        run(few(**second, dataset="people_b"))


@pytest.mark.parametrize("forgotten", ["the ledger's marks", "the private notes"])
def test_23_either_memory_is_enough(exhausted: dict[str, Any], monkeypatch: pytest.MonkeyPatch, forgotten: str) -> None:
    """The private notes of runs, and the ledger's own marks, under the private root's key."""
    if forgotten == "the private notes":
        for note in (Settings().private_root / "runs").glob("*/run.json"):
            note.unlink()
    else:
        monkeypatch.setattr(known_tables, "_find_matches", lambda *arguments: [])
    refused_as_it_is(few(**exhausted, dataset="people_b"))


def test_23_a_stated_reason_is_kept_and_reported(exhausted: dict[str, Any]) -> None:
    spec = few(**exhausted, dataset="people_b")
    assert run(spec, new_dataset="approved by the board").drawn
    rows = [(m.dataset, m.subject, m.text) for m in Ledger(Settings().ledger).marks() if m.kind == "reason"]
    assert rows == [("people_b", "people", "approved by the board")]
    verified = LedgerView(Settings()).verify()
    assert verified.problems == ()
    pair = [note for note in map(str, verified.notes) if "have released the same table" in note]
    assert len(pair) == 1 and "'people' and 'people_b'" in pair[0] and "approved by the board" in pair[0]
    with pytest.raises(BudgetRefusedError):
        run(spec, fresh=True)  # a reason is needed once


@pytest.mark.parametrize("reason", keep_first(["two\nlines", "", "  ", "a" * 501]))
def test_23_a_reason_that_is_none_is_refused(exhausted: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=r"^new_dataset: is not a reason"):
        run(few(**exhausted, dataset="people_b"), new_dataset=reason)


def test_23_the_same_name_needs_no_reason_and_what_costs_nothing_is_found(places: Path, save: Any) -> None:
    spec = few(save(people(200)))
    first = run(spec)
    run(spec, fresh=True)
    assert run(few(spec.data, synthesis={"seed": 1, "sweeps": 2})).drawn == ()
    assert first.drawn


def failed(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that stops once its budget is reserved, before any noise is drawn: all is given back."""

    def stopped(*arguments: Any) -> Any:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("privsyn.tasks.steps.encode.encode", stopped)
        with pytest.raises(PrivsynError):
            run(spec)
    name = spec.dataset
    assert {e.event for e in Ledger(Settings().ledger).entries(name)} == {"reserve", "cancel"}
    assert Ledger(Settings().ledger).summary(name)[0].rho == 0


@pytest.mark.slow
def test_23_a_name_that_only_failed_is_none(places: Path, save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was spent under a wrong spelling, so the right one is no second name, and the wrong one is afterwards."""
    right = few(save(people(200)))
    wrong = few(right.data, dataset="poeple")
    failed(wrong, monkeypatch)
    assert run(right).drawn
    with pytest.raises(RequestError, match="was released as 'people', and 'poeple' would be a second"):
        run(wrong)
    assert LedgerView(Settings()).verify().problems == ()
    assert not any("the same table" in note for note in map(str, LedgerView(Settings()).verify().notes))


def test_23_a_name_whose_noise_may_be_drawn_is_one(places: Path, save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A charge that was not given back counts, though its release never came."""
    right = few(save(people(200)))
    wrong = few(right.data, dataset="poeple")
    monkeypatch.setattr("privsyn.engine.execute.Run.give_back", lambda shell: None)
    with monkeypatch.context() as patch:
        patch.setattr("privsyn.tasks.steps.encode.encode", lambda *a: pytest.fail("stopped"))
        with pytest.raises(pytest.fail.Exception):
            run(wrong)
    with pytest.raises(RequestError, match="was released as 'poeple'"):
        run(right)


def test_23_a_name_that_holds_another_table_is_new_to_this_one(exhausted: dict[str, Any], places: Path) -> None:
    """Opening the name with another file first, and putting both into a folder, changes nothing."""
    folder = places / "folder"
    folder.mkdir()
    pq.write_table(people(50, seed=1), folder / "other.parquet")
    roomy = {**exhausted, "budget": {"epsilon": 3.0, "delta": 1e-9}, "dataset": "people_b"}
    run(few(**{**roomy, "data": str(folder / "other.parquet")}))
    shutil.copy(exhausted["data"], folder / "people.parquet")
    for data in (str(folder), exhausted["data"]):
        with pytest.raises(RequestError, match=REFUSED):
            run(few(**{**roomy, "data": data}))


def test_23_marks_of_the_ledger_tell_no_two_tables_alike(places: Path, save: Any) -> None:
    """Whether a table changed between two releases, or is that of another name, does not show in the ledger."""
    spec = few(save(people(200)))
    run(spec)
    run(spec, fresh=True)
    run(few(spec.data, dataset="people_b"), new_dataset="a test")
    marks = [m.text for m in Ledger(Settings().ledger).marks() if m.kind == "table"]
    assert len(marks) == len(set(marks)) == 3


def test_23_the_command_says_what_it_opens_and_asks_for_a_reason(
    places: Path, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_no_server(monkeypatch)
    monkeypatch.chdir(places)
    save(people(200))
    (places / "people.yaml").write_text(PEOPLE_YAML)
    (places / "other.yaml").write_text(PEOPLE_YAML.replace("dataset: people", "dataset: people_b"))
    opening = "This opens the data set 'people' and sets its lifetime cap for good: epsilon 2, delta 1e-09."
    assert opening in privsyn("release", "people.yaml").stderr
    assert "This opens" not in privsyn("release", "people.yaml").stderr
    refused = privsyn("release", "other.yaml")
    assert refused.exit_code == 2
    assert "give the reason for another one in --new-dataset" in refused.stderr
    done = privsyn("release", "other.yaml", "--new-dataset", "another question")
    assert done.exit_code == 0, done.stderr
    assert "'people_b'" in done.stderr

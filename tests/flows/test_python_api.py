"""The Python functions: a table in memory becomes a release, its parts can be looked at, and errors use their words."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import privsyn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs.draft import list_open_fields
from privsyn.specs.messages import group_todos
from privsyn.specs.spec_file import load_any_spec, load_spec
from tests.architecture.test_public_api import loaded_after
from tests.support.evaluations import slight_settings
from tests.support.kept import Kept
from tests.support.places import ROOT
from tests.support.specs import people

CANARY = "CANARY"


def filled(table: pa.Table) -> privsyn.SpecDraft:
    """A draft for ``people`` with every TODO filled in, two columns of it released."""
    draft = privsyn.draft_spec(table, dataset="people")
    draft["unit"] = {"records_per_person": 1}
    draft["budget"] = {"epsilon": 3.0, "delta": 1e-8}
    draft["synthesis"] = {"sweeps": 2}
    columns = draft["columns"]
    columns["age"].update(min=18, max=89, bins=24, nullable=True)
    columns["region"].update(values=["north", "south", "east"], unlisted="other", nullable=False)
    for name in ("income", "happy", "seen", "caseid"):
        columns[name] = {"kind": "drop"}
    return draft


@pytest.fixture
def table() -> pa.Table:
    return people(300)


@pytest.fixture
def made(kept: Kept, places: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> privsyn.Release:
    """A release of ``table``, the same for every test that asks for it; ``places`` is another folder."""
    kept.begin(monkeypatch)
    return kept.once(lambda: privsyn.release(table, filled(table)))  # type: ignore[no-any-return]


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_table_in_memory_becomes_a_release(made: privsyn.Release, kept: Kept, table: pa.Table) -> None:
    assert made.drawn == ("one_way_marginals", "indif_scores", "measure_marginals")
    assert made.table.column_names == ["age", "region"]
    assert list(made.to_pandas().columns) == ["age", "region"]
    assert made.folder == kept.home / "out" / "released" / made.run
    assert made.certificate.epsilon == 1.0 and made.certificate.run == made.run
    assert {"one_way", "one_way_receipts", "consistent"} <= set(made.marginals)
    assert made.spec.privacy.epsilon == 1.0 and made.note.startswith("# ")
    again = privsyn.release(table, filled(table))
    assert (again, again.drawn) == (made, ())
    assert privsyn.open_release(made.run) == privsyn.open_release(made.folder) == made
    assert privsyn.rerun(made).agrees


def test_nothing_is_written_but_where_it_is_said(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "working").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.delenv("PRIVSYN_OUT", raising=False)
    release = privsyn.release(table, filled(table), out=tmp_path / "named")
    assert files_in(folder) == set()
    assert {n for n in files_in(tmp_path) if not n.startswith("ledger.sqlite")} == {"working", "named"}
    assert files_in(tmp_path / "named") == {"released", "private"}
    assert privsyn.open_release(release.run, out=tmp_path / "named") == release
    privsyn.release(table, filled(table), fresh=True)  # another private folder pays again
    assert files_in(folder) == {"privsyn-out"}


def test_the_ledger_says_what_was_spent(made: privsyn.Release) -> None:
    ledger = privsyn.ledger()
    shown = ledger.show("people")
    assert [row[0] for row in shown.rows] == ["people"] and "used; " in str(shown)
    assert "<td>people</td>" in shown._repr_html_()
    assert {entry["run"] for entry in ledger.entries("people")} == {made.run}
    assert ledger.verify().verified and "ledger.sqlite" in repr(ledger)
    # A notebook shows promise cost and head.
    shown = made._repr_html_()
    assert "(1, 1e-09)-differential privacy" in shown and escape(made.cost) in shown and str(made.folder) in shown
    assert shown.count("<tr>") == 1 + 5
    assert repr(made) == f"<Release {made.run}: {made.table.num_rows:,} rows, (1, 1e-09)-DP, {made.folder}>"
    # A release goes to another process and answers there.
    answer = made.count("age")
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):  # noqa: S301 - its own
        assert other == made and other.count("age").equals(answer)


def test_a_password_is_not_in_the_ledgers_repr(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", f"postgresql://me:{CANARY}@localhost/ledger")
    assert CANARY not in repr(privsyn.ledger()) and "me:***@localhost" in repr(privsyn.ledger())


def test_texts_of_a_table_are_shown_as_text() -> None:
    from privsyn.engine.progress import format_html_table

    assert format_html_table(["<b>"], [["<i>", "TODO <"]], "TODO").count("&lt;") == 3


def test_a_draft_is_filled_in_place_saved_and_read(table: pa.Table, tmp_path: Path) -> None:
    draft = privsyn.draft_spec(table, dataset="people")
    assert "data" not in draft
    assert draft.todos[:3] == ("unit", "budget", "columns.age.min")
    assert "<mark>TODO</mark>" in draft._repr_html_() and "12 TODO" not in draft._repr_html_()
    open_fields = list_open_fields(draft.to_yaml())
    assert repr(draft).endswith(f"# {len(draft.todos)} TODOs left: {'; '.join(group_todos(open_fields))}")
    assert len(open_fields) == len(draft.todos)
    assert list(draft["columns"]) == table.column_names
    draft = filled(table)
    draft["columns"]["region"]["values"] = ["no", "2019", "a: b", "é", "1e-9", "null", "~"]
    draft["columns"]["seen"] = {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 4}
    assert draft.todos == () and "mark" not in draft._repr_html_() and "No TODO is left" in repr(draft)
    before = draft.to_yaml()
    assert load_spec(draft.save(tmp_path / "spec.yaml")) == load_any_spec(draft)
    assert load_any_spec(draft, {"privacy": {"epsilon": 0.5}}).privacy.epsilon == 0.5
    assert draft.to_yaml() == before
    assert list(load_spec(tmp_path / "spec.yaml").columns) == table.column_names
    with pytest.raises(FileExistsError):
        draft.save(tmp_path / "spec.yaml")


def test_a_spec_is_a_model_a_mapping_or_a_file(table: pa.Table, tmp_path: Path) -> None:
    draft = filled(table)
    model = load_any_spec(draft)
    assert isinstance(model, ReleaseSpec) and load_any_spec(model) is model
    changed = load_any_spec(model, {"privacy": {"epsilon": 0.5, "delta": None}})
    assert changed == load_any_spec({**draft, "privacy": {"epsilon": 0.5, "delta": 1e-9}})
    assert changed == load_any_spec(str(draft.save(tmp_path / "s.yaml")), {"privacy": {"epsilon": 0.5}})


def without(name: str) -> Callable[[privsyn.SpecDraft], Any]:
    return lambda draft: {k: v for k, v in draft.items() if k != name}


Call = Callable[[pa.Table, privsyn.SpecDraft], Any]

WRONG: dict[str, tuple[Call, str]] = {
    "no data": (lambda t, s: privsyn.release(None, s), "^data: names no table.*hand over a table"),
    "empty path": (lambda t, s: privsyn.release("", s), "^data: names no table"),
    "no file": (lambda t, s: privsyn.release("no.csv", s), "^data: there is no file.*no.csv"),
    "no table": (lambda t, s: privsyn.release(5, s), "^data: is of the type int"),  # type: ignore[arg-type]
    "no spec": (lambda t, s: privsyn.release(t, 5), "^spec: is of the type int"),  # type: ignore[arg-type]
    "no file of a spec": (lambda t, s: privsyn.release(t, "no.yaml"), r"`privsyn\.draft_spec\(\)`"),
    "wrong epsilon": (lambda t, s: privsyn.release(t, s, epsilon=-1), "^privacy.epsilon: is `-1`"),
    "TODO left": (lambda t, s: privsyn.release(t, privsyn.draft_spec(t, dataset="people")), "^unit: still says TODO"),
    "another table": (lambda t, s: privsyn.release(t.drop(["age"]), s), "^columns: .*'age'"),
    "too much": (lambda t, s: privsyn.release(t, s, epsilon=4), "^budget: .*nothing was spent"),
    "drawn period": (
        lambda t, s: privsyn.release(t, s, fresh=True, period="2026-11"),
        "^fresh: a period is drawn once",
    ),
    "wrong period": (lambda t, s: privsyn.release(t, s, period="x"), "^period: 'x'"),
    "no release": (lambda t, s: privsyn.open_release("x"), r"^release: .*\(out or PRIVSYN_OUT\)"),
    "unknown data set": (lambda t, s: privsyn.ledger().show("x"), "^dataset: .*does not know 'x'"),
    "no ledger": (lambda t, s: privsyn.ledger().verify(), "is missing.*set PRIVSYN_LEDGER"),
    "unknown method": (lambda t, s: privsyn.compare(s, methods=["x"]), "^methods: .*'x'"),
    "no dictionary": (
        lambda t, s: privsyn.draft_spec(t, dictionary="no.json"),
        "^dictionary: there is no file no.json",
    ),
}
KINDS: dict[str, type[Exception]] = {"too much": privsyn.BudgetRefusedError, "no ledger": privsyn.LedgerError}
"""Errors but those of a request."""


@pytest.mark.parametrize("what", WRONG)
def test_errors_speak_the_words_of_python(what: str, places: Path, table: pa.Table) -> None:
    call, words = WRONG[what]
    with pytest.raises(KINDS.get(what, privsyn.RequestError), match=words) as caught:
        call(table, filled(table))
    assert "--" not in str(caught.value) and "`privsyn " not in str(caught.value)
    assert list(places.rglob("manifest.json")) == []


def test_what_is_private_is_not_printed(made: privsyn.Release, table: pa.Table, places: Path) -> None:
    report = privsyn.evaluate(made, table, settings=slight_settings(places))
    # The noise has no seed: a short figure, such as 0.5, could stand in a text by chance.
    figures = {f"{value}" for metrics in report.scores.values() for value in metrics.values() if len(f"{value}") > 8}
    assert figures
    shown = (
        repr(report),
        str(report),
        repr(report.evaluation),
        str(report.evaluation.scores[0]),
        f"{report.evaluation}",
    )
    assert not [text for text in shown if "PRIVATE" not in text]
    assert not [f for f in figures if any(f in text for text in shown)]
    checked = privsyn.check_spec(filled(table), table)
    assert checked.fit is not None and checked.fit.rows == 300
    for text in (repr(checked), str(checked), checked._repr_html_(), repr(checked.fit), repr(checked.fit.columns)):
        assert "west" not in text and "300" not in text
    assert "age" in checked._repr_html_()


@pytest.mark.slow
def test_neither_a_release_nor_one_that_is_there_loads_anything_heavy(
    places: Path, table: pa.Table, save: Callable[..., str]
) -> None:
    data, spec = save(table), filled(table).save(places / "spec.yaml")
    call = f"import privsyn; release = privsyn.release({data!r}, {str(spec)!r})"
    assert loaded_after(f"{call}; assert release.drawn", ROOT) == set()
    assert loaded_after(f"{call}; assert not release.drawn; release.table, repr(release)", ROOT) == set()
    run = files_in(places / "out" / "released").pop()
    opened = f"import privsyn; release = privsyn.open_release({run!r}); release.to_pandas(), release._repr_html_()"
    assert loaded_after(opened, ROOT) == set()

"""``privsyn prune``: what no run needs goes, what was paid for stays, and a running release is left alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privsyn.api import prune as retention
from privsyn.api.ledger import LedgerView
from privsyn.api.prune import prune
from privsyn.base.errors import LedgerMissingError
from privsyn.base.settings import Settings
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.store import Store
from tests.support.commands import privsyn
from tests.support.kept import Kept
from tests.support.releases import few, run
from tests.support.specs import changed, people


class StoppedError(BaseException):
    """Power off."""


@pytest.fixture
def released(kept: Kept, monkeypatch: pytest.MonkeyPatch, save: Callable[..., str]) -> Any:
    """A folder with one release, and its spec."""
    kept.begin(monkeypatch)
    data = save(people(200))

    def make() -> Any:
        spec = few(data)
        run(spec)
        return spec

    return changed(kept.once(make), data=data)


def private(*parts: str) -> Path:
    return Settings().private_root.joinpath(*parts)


def files() -> set[str]:
    return {p.relative_to(private()).as_posix() for p in private().rglob("*") if p.is_file() and "locks" not in p.parts}


def orphans() -> set[str]:
    """Files that no run needs, of each kind; their places."""
    made = {
        "store/people/encode-0123456789abcdef-encoded_rows.parquet": "rows",
        f"records/people/step-{'0' * 64}.json": "{}",
        f"prefect/records/encode-{'0' * 64}": json.dumps({"storage_key": str(private("prefect/results/r"))}),
        "prefect/results/r": "{}",
        "reports/people-00000000/report.html": "<html>",
    }
    for place, text in made.items():
        private(place).parent.mkdir(parents=True, exist_ok=True)
        private(place).write_text(text)
    return set(made)


def test_what_a_run_needs_is_no_waste(released: Any) -> None:
    assert prune(Settings()).found == ()
    before = files()
    result = privsyn("prune", "--delete")
    assert result.exit_code == 0 and "Every file is one that a run needs." in result.stdout
    assert files() == before
    # It is shown first and removed on request.
    made = orphans()
    shown = privsyn("prune")
    assert shown.exit_code == 0 and "Nothing was removed: --delete does it." in shown.stdout and shown.stderr == ""
    assert files() == before | made
    answer = json.loads(privsyn("prune", "--delete", "--json").stdout)
    assert answer["removed"] is True and answer["left_out"] == []
    assert sum(each["bytes"] for each in answer["found"]) > 0
    assert files() == before
    assert run(released).drawn == ()


def test_private_rows_go_and_come_back_at_no_cost(released: Any) -> None:
    before, charged = files(), Ledger(Settings().ledger).export()
    prune(Settings(), rows=True, delete=True)
    gone = before - files()
    assert {name.rpartition("-")[2] for name in gone} == {"encoded_rows.parquet", "recoded_rows.parquet"}
    assert LedgerView(Settings()).verify().problems == ()
    again = changed(released, synthesis={"seed": 9, "sweeps": 2})
    assert run(again).drawn == () and run(released).drawn == ()
    assert Ledger(Settings().ledger).export() == charged
    assert gone <= files()


@pytest.mark.slow
@pytest.mark.parametrize("owner", ["keep_noise", "settle"])
def test_an_unfinished_run_keeps_its_rows(released: Any, monkeypatch: pytest.MonkeyPatch, owner: str) -> None:
    """Its noise may be drawn, and would meet these very rows."""
    from privsyn.engine.execute import Run
    from privsyn.storage.records import Records

    def stop(*arguments: Any, **named: Any) -> None:
        raise StoppedError

    spec = changed(released, privacy={"epsilon": 0.5, "delta": 1e-9})
    with monkeypatch.context() as once:
        once.setattr({"keep_noise": Records, "settle": Ledger}[owner], owner, stop)
        once.setattr(Run, "give_back", lambda shell: None)
        with pytest.raises(StoppedError):
            run(spec)
    before = files()
    prune(Settings(), rows=True, delete=True)
    assert {name for name in before - files() if "encode" in name or "noise" in name} == set()
    assert run(spec).rows > 0
    assert LedgerView(Settings()).verify().problems == ()


def test_what_was_paid_for_stays_without_its_note(released: Any) -> None:
    """The ledger knows the keys of every charge."""
    shutil.rmtree(private("runs"))
    prune(Settings(), rows=True, reports=True, delete=True)
    assert run(released).drawn == ()


def test_mutant_keys_that_the_ledger_is_not_asked_for(released: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: only the notes say what is needed; a noisy table that was paid for goes."""
    monkeypatch.setattr(Ledger, "entries", lambda ledger, dataset=None: [])
    shutil.rmtree(private("runs"))
    gone = {each.path.name for each in prune(Settings()).found}
    assert any(name.startswith("one_way_marginals") for name in gone)


def test_a_running_release_is_left_alone(released: Any) -> None:
    made = orphans()
    settings = Settings()
    with Store(settings.private_root, settings.released_root, "people").lock("release-people"):
        result = privsyn("prune", "--delete")
    assert "Left out: 'people', which a running release holds." in result.stdout
    assert {name for name in made if "people/" in name and "reports" not in name} <= files()


def test_reports_and_comparisons_go_when_they_are_asked_for(released: Any) -> None:
    (name,) = (path.name for path in private("runs").iterdir())
    for place in (private("reports", name), private("compare", "people-1")):
        place.mkdir(parents=True)
        (place / "report.html").write_text("<html>")
    assert prune(Settings()).found == ()
    reasons = {each.reason for each in prune(Settings(), reports=True, delete=True).found}
    assert reasons == {"a private report", "a comparison's results"}
    assert not private("reports", name).exists() and not private("compare", "people-1").exists()


def test_without_its_ledger_nothing_is_removed(released: Any) -> None:
    before = orphans() | files()
    Path(Settings().ledger).unlink()
    with pytest.raises(LedgerMissingError):
        prune(Settings(), rows=True, delete=True)
    assert privsyn("prune", "--delete").exit_code == 1
    assert files() == before
    assert retention.HELD_FOR == 0

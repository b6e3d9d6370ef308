"""Bug class 24: one charge, two draws, from copies of a private folder that share a ledger.

Two copies know one key and so ask for one charge.  The ledger enters each draw before its look, and takes one a
charge: of two copies one looks at the rows and the other is refused, whenever the copy was made.

It does not see looks beyond the default three, nor two copies whose ledgers are copies, too.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Lock, local
from typing import Any

import pytest

from privsyn.api.ledger import LedgerView
from privsyn.base.errors import LedgerError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.storage.records import Records
from privsyn.storage.store import Store
from tests.support.releases import few, release_in_process
from tests.support.specs import people
from tests.support.tampering import tamper

LOOKS = sum(isinstance(step, ReleaseStep) for step in STEPS)


class StoppedError(BaseException):
    """Power off: nothing is given back."""


@dataclass
class Copies:
    """A table, two private folders of one key, one ledger, and what was seen of the looks at the rows."""

    spec: ReleaseSpec
    first: Settings
    second: Settings
    looked: list[tuple[str, str]]

    def copy(self) -> None:
        """Make the second private folder of the first, as it is now."""
        shutil.copytree(self.first.private_root, self.second.private_root)

    @property
    def ledger(self) -> Ledger:
        """The one ledger."""
        return Ledger(self.first.ledger)

    def draws_of_each_step(self) -> Counter[str]:
        """Release step -> how many different draws met its rows."""
        return Counter(step for step, _ in set(self.looked))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger may be made; in PostgreSQL among the slow tests, and where a test asks for it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.sqlite"
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
def copies(ledger_url: str, tmp_path: Path, save: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Copies:
    spec = few(save(people(200)))
    first, second = (Settings(out=tmp_path / name, ledger=ledger_url) for name in ("first", "second"))
    made = Copies(spec, first, second, [])
    mine = local()
    noise, read_rows = Run._draw_or_take_up_noise, ReleaseStep.read_rows

    def noted(shell: Run, *arguments: Any) -> Any:
        mine.drawn = noise(shell, *arguments)
        return mine.drawn

    def looking(step: ReleaseStep, *arguments: Any) -> Any:
        digest = hashlib.sha256(b"".join(cells.tobytes() for cells in mine.drawn)).hexdigest()
        made.looked.append((step.name, digest))
        return read_rows(step, *arguments)

    monkeypatch.setattr(Run, "_draw_or_take_up_noise", noted)
    monkeypatch.setattr(ReleaseStep, "read_rows", looking)
    return made


def at_once(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Release from both copies; each waits with its first noise until the other has drawn too.  What came of each.

    Otherwise they take turns: the library of the contract checks is not for several threads.
    """
    Store(copies.first.private_root, copies.first.released_root)
    copies.copy()
    barrier, turn, mine = Barrier(2), Lock(), local()
    keep = Records.keep_noise

    def kept(*arguments: Any) -> None:
        keep(*arguments)
        if not hasattr(mine, "waited"):
            mine.waited = True
            turn.release()
            barrier.wait(60)
            turn.acquire()

    monkeypatch.setattr(Records, "keep_noise", kept)

    def release(settings: Settings) -> str:
        with turn:
            try:
                release_in_process(copies.spec, settings)
            except LedgerError as refused:
                return str(refused)
            return "released"

    with ThreadPoolExecutor(2) as threads:
        return sorted(threads.map(release, (copies.first, copies.second)))


@pytest.mark.parametrize("ledger_url", ["sqlite", "postgresql"], indirect=True)
def test_24_of_two_copies_at_once_one_looks(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    released, refused = at_once(copies, monkeypatch)
    assert released == "released"
    assert "was already drawn in another copy of this private folder; nothing was read here" in refused
    assert set(copies.draws_of_each_step().values()) == {1}
    assert len(copies.draws_of_each_step()) == LOOKS
    assert copies.ledger.verify() == []
    events = Counter(entry.event for entry in copies.ledger.entries())
    assert events == {"reserve": LOOKS, "spent": LOOKS}, "the copy that was refused gave nothing back"


def test_24_mutant_a_draw_that_is_not_entered(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: what the ledger did before; both look, each with its own noise, and one of each is charged."""
    monkeypatch.setattr(Ledger, "claim", lambda *arguments: None)
    at_once(copies, monkeypatch)
    assert max(copies.draws_of_each_step().values()) == 2


def stopped(copies: Copies, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Release from the first folder; the power goes at the first call of this function."""

    def stop(*arguments: Any, **named: Any) -> None:
        raise StoppedError

    with monkeypatch.context() as once:
        once.setattr(owner, name, stop)
        once.setattr(Run, "give_back", lambda shell: None)
        with pytest.raises(StoppedError):
            release_in_process(copies.spec, copies.first)


def test_24_a_copy_of_a_reserved_charge_draws_nothing_once_the_other_has(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied while reserved; the first draws, looks and is killed.  The copy is refused, and the first goes on."""
    stopped(copies, monkeypatch, Records, "keep_noise")
    copies.copy()
    stopped(copies, monkeypatch, Ledger, "settle")
    for _ in range(2):
        with pytest.raises(LedgerError, match="in another copy of this private folder"):
            release_in_process(copies.spec, copies.second)
    assert "cancel" not in [entry.event for entry in copies.ledger.entries()]
    made = release_in_process(copies.spec, copies.first)
    assert set(copies.draws_of_each_step().values()) == {1} and made.rows > 0
    assert LedgerView(copies.first).verify().problems == ()


def test_24_a_copy_with_the_noise_goes_on_with_it(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored backup of a killed run finishes that run: the same noise is the same draw."""
    stopped(copies, monkeypatch, Ledger, "settle")
    copies.copy()
    shutil.rmtree(copies.first.private_root)
    copies.second.private_root.rename(copies.first.private_root)
    release_in_process(copies.spec, copies.first)
    assert set(copies.draws_of_each_step().values()) == {1}
    assert LedgerView(copies.first).verify().problems == ()


def test_24_a_claimed_charge_is_not_given_back(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(copies, monkeypatch, Ledger, "settle")
    (claimed,) = (mark for mark in copies.ledger.marks() if mark.kind == "draw")
    key = copies.ledger.entries()[int(claimed.subject) - 1].key
    assert copies.ledger.claimed("people", key) == claimed.text
    with pytest.raises(LedgerError, match="was drawn, so it is not given back"):
        copies.ledger.abandon("people", key, data_was_read=False)
    with pytest.raises(LedgerError, match="already drawn"):
        copies.ledger.claim("people", key, "another draw")
    with pytest.raises(LedgerError, match="is not reserved"):
        copies.ledger.claim("people", "0" * 64, "a draw")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE marks SET text = 'x'", "row 1 of the marks was changed"),
        ("DELETE FROM marks", "but its own count and last hash say 2"),
    ],
)
def test_24_a_changed_draw_is_found(copies: Copies, monkeypatch: pytest.MonkeyPatch, change: str, words: str) -> None:
    stopped(copies, monkeypatch, Ledger, "settle")
    tamper(copies.first.ledger, change, table="marks")
    assert any(words in problem for problem in copies.ledger.verify())
    with pytest.raises(LedgerError, match="does not add up"):
        release_in_process(copies.spec, copies.first)

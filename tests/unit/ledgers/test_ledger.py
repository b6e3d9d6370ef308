"""The ledger: exact sums, one charge a key, a cap that holds under concurrency, and a history that cannot be edited."""

import os
import shutil
import sqlite3
import stat
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from privsyn.api.ledger import LedgerView
from privsyn.base.errors import BudgetRefusedError, LedgerError, LedgerMissingError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import GENESIS, Dataset, Entry, audit, hash_entry
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, convert_rho_to_epsilon
from tests.support.examples import choose_example_count
from tests.support.ledger_workers import reserve_many
from tests.support.tampering import raw, tamper

CAP = Guarantee(epsilon=2.0, delta=1e-9)
CAP_RHO = convert_epsilon_to_rho(2.0, 1e-9)


@pytest.fixture
def url(ledger_url):
    return ledger_url


@pytest.fixture
def ledger(url):
    made = Ledger(url)
    made.register("people", CAP)
    return made


def line(key: str, share: Fraction | str = "1/10", step: str = "one_way") -> ChargeLine:
    return ChargeLine(step, key, CAP_RHO * Fraction(share), {"queries": 3})


def test_a_run_is_reserved_and_settled(ledger):
    ledger.reserve("people", "run-1", [line("a"), line("b", "8/10")])
    assert ledger.state("people", "a") == "reserved"
    ledger.settle("people", "a")
    ledger.settle("people", "a")
    ledger.abandon("people", "b", data_was_read=True)
    assert [ledger.state("people", k) for k in ("a", "b", "c")] == ["spent", "abandoned", None]
    (summary,) = ledger.summary("people")
    assert summary.rho == CAP_RHO * Fraction(9, 10)
    assert summary.remaining_rho == CAP_RHO / 10
    assert summary.epsilon == convert_rho_to_epsilon(summary.rho, CAP.delta)
    assert (summary.entries, summary.cap) == (4, CAP)
    assert ledger.verify() == []


def test_sums_are_exact(ledger):
    for i in range(10):
        ledger.reserve("people", f"run-{i}", [line(f"key-{i}", "1/10")])
    (summary,) = ledger.summary()
    assert summary.rho == summary.cap_rho == CAP_RHO
    assert summary.remaining_rho == 0 and summary.remaining_epsilon == 0
    with pytest.raises(BudgetRefusedError, match="Nothing is left"):
        ledger.reserve("people", "run-x", [line("one-more", Fraction(1, 10**30))])


def test_a_known_key_is_not_charged_again(ledger):
    ledger.reserve("people", "run-1", [line("a"), line("b")])
    ledger.settle("people", "a")
    ledger.reserve("people", "run-2", [line("a"), line("b"), line("c"), line("c")])
    assert ledger.summary("people")[0].rho == 3 * CAP_RHO / 10
    with pytest.raises(LedgerError, match="another price"):
        ledger.reserve("people", "run-3", [line("a", "2/10")])


def test_untouched_is_given_back_and_touched_is_not(ledger):
    ledger.reserve("people", "run-1", [line("a", "8/10")])
    ledger.abandon("people", "a", data_was_read=False)
    assert ledger.summary("people")[0].rho == 0
    ledger.reserve("people", "run-2", [line("a", "6/10")])
    ledger.abandon("people", "a", data_was_read=True)
    assert ledger.summary("people")[0].rho == CAP_RHO * Fraction(6, 10)
    ledger.reserve("people", "run-3", [line("a", "3/10")])
    assert ledger.state("people", "a") == "reserved"
    assert ledger.summary("people")[0].rho == CAP_RHO * Fraction(9, 10)
    assert ledger.verify() == []


def test_only_a_reserved_charge_can_be_closed(ledger):
    ledger.reserve("people", "run-1", [line("a")])
    ledger.settle("people", "a")
    for close in (lambda: ledger.abandon("people", "a", data_was_read=False), lambda: ledger.settle("people", "never")):
        with pytest.raises(LedgerError, match="only a reserved one"):
            close()
    assert ledger.state("people", "a") == "spent"


def test_refusal_writes_nothing_and_says_the_figures(ledger):
    ledger.reserve("people", "run-1", [line("a", "7/10")])
    before = ledger.export()
    with pytest.raises(BudgetRefusedError) as refused:
        ledger.reserve("people", "run-2", [line("b", "2/10"), line("c", "2/10")])
    assert ledger.export() == before
    text = str(refused.value)
    for word in (
        "spent so far 70 % (rho",
        "asked 40 % (rho",
        "left 30 % (rho",
        "cap of rho",
        "epsilon 2 at",
        "'people'",
        "nothing was spent",
    ):
        assert word in text
    fits = float(text.split("at most epsilon ")[1].split()[0])
    left = ledger.summary("people")[0].remaining_rho
    assert convert_epsilon_to_rho(fits, CAP.delta) <= left < convert_epsilon_to_rho(fits * 1.01, CAP.delta)
    ledger.reserve("people", "run-3", [ChargeLine("all", "d", convert_epsilon_to_rho(fits, CAP.delta))])


def test_room_can_be_asked_for_without_writing(ledger):
    ledger.check_room("people", [line("a", "7/10")])
    ledger.reserve("people", "run-1", [line("a", "7/10")])
    before = ledger.export()
    ledger.check_room("people", [line("a", "7/10"), line("b", "3/10")])
    with pytest.raises(BudgetRefusedError):
        ledger.check_room("people", [line("b", "4/10")])
    assert ledger.export() == before


def test_the_cap_is_set_once_and_belongs_to_the_data_set(ledger):
    ledger.register("people", CAP)
    with pytest.raises(RequestError, match=r"^budget: the ledger holds epsilon 2, delta 1e-09 .* since 20"):
        ledger.register("people", Guarantee(epsilon=3.0, delta=1e-9))
    with pytest.raises(RequestError):
        ledger.register("people", Guarantee(epsilon=2.0, delta=1e-8))
    ledger.register("others", Guarantee(epsilon=1.0, delta=1e-6))
    ledger.reserve("others", "run-1", [ChargeLine("all", "a", convert_epsilon_to_rho(1.0, 1e-6))])
    assert ledger.summary("people")[0].rho == 0
    assert [s.dataset for s in ledger.summary()] == ["others", "people"]


def test_unknown_data_set_and_free_lines_are_refused(ledger):
    with pytest.raises(LedgerError, match="does not know 'strangers'"):
        ledger.reserve("strangers", "run-1", [line("a")])
    with pytest.raises(ValueError, match="positive"):
        ledger.reserve("people", "run-1", [line("a", "0")])
    assert ledger.summary("strangers") == [] and ledger.state("strangers", "a") is None


def test_looking_makes_no_ledger(url):
    with pytest.raises(LedgerMissingError, match="is missing"):
        Ledger(url, create=False)
    with pytest.raises(LedgerMissingError):
        LedgerView(Settings(ledger=url)).opened()
    assert LedgerView(Settings(ledger=url)).as_json() == {"verified": True, "problems": [], "datasets": []}
    with pytest.raises(RequestError, match="does not know 'people'"):
        LedgerView(Settings(ledger=url)).as_json("people")
    Ledger(url)
    assert LedgerView(Settings(ledger=url)).opened().summary() == []


def test_history_survives_the_process(ledger, url):
    ledger.reserve("people", "run-1", [line("a")])
    again = Ledger(url)
    (entry,) = again.entries("people")
    assert (entry.run, entry.step, entry.key, entry.event) == ("run-1", "one_way", "a", "reserve")
    assert entry.rho == CAP_RHO / 10
    assert entry.detail == {"queries": 3} and entry.created.endswith("+00:00")
    assert again.export()[0]["rho"] == f"{entry.rho.numerator}/{entry.rho.denominator}"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET rho = '0/1'",
        "DELETE FROM entries",
        "UPDATE datasets SET rho = '1/1'",
        "DELETE FROM datasets",
    ],
)
def test_the_database_itself_refuses_changes(ledger, url, statement):
    ledger.reserve("people", "run-1", [line("a")])
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), raw(url) as connection:
        connection.exec_driver_sql(statement)
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("UPDATE entries SET rho = '1/1000000' WHERE id = 1", "entries"),
        ("UPDATE entries SET event = 'cancel' WHERE id = 3", "entries"),
        ("UPDATE entries SET detail = '{}' WHERE id = 2", "entries"),
        ("DELETE FROM entries WHERE id = 1", "entries"),
        ("DELETE FROM entries WHERE id = 3", "entries"),
        ("DELETE FROM entries", "entries"),
        ("UPDATE datasets SET rho = '100/1'", "datasets"),
        ("UPDATE datasets SET epsilon = '50.0'", "datasets"),
    ],
)
def test_tampering_is_found_and_closes_the_ledger(ledger, url, statement, table):
    ledger.reserve("people", "run-1", [line("a"), line("b")])
    ledger.abandon("people", "a", data_was_read=True)
    tamper(url, statement, table)
    assert ledger.verify()
    with pytest.raises(LedgerError, match="does not add up"):
        ledger.reserve("people", "run-2", [line("c")])


def test_a_history_that_passed_its_cap_on_the_way_is_found():
    """Even where something given back brings the sum below the cap again: at that time the cap did not hold."""
    dataset = Dataset("people", CAP, CAP_RHO, "2026-01-01")
    events = [("a", "reserve", 6), ("b", "reserve", 6), ("a", "cancel", 6)]
    entries, last = [], GENESIS
    for number, (key, event, tenths) in enumerate(events, 1):
        entry = Entry(number, "people", "run", "one_way", key, event, CAP_RHO * tenths / 10, {}, "2026", last, "")
        last = hash_entry(entry.row(), dataset)
        entries.append(replace(entry, hash=last))
    assert audit(entries, {"people": dataset}, 3, last) == ["'people' had spent more than its cap after entry 2"]
    assert audit(entries[:1], {"people": dataset}, 1, entries[0].hash) == []


def test_a_missing_trigger_is_found(ledger, url):
    drop = "DROP TRIGGER entries_no_update" if "sqlite" in url else "ALTER TABLE entries DISABLE TRIGGER USER"
    with raw(url) as connection:
        connection.exec_driver_sql(drop)
    assert any("trigger" in problem for problem in ledger.verify())


def test_200_concurrent_reservations_never_pass_the_cap(url, children):
    """From ten processes at once: no deadlock, no charge twice, and the cap holds after every single entry."""
    with children.Pool(10) as pool:
        asked = pool.starmap_async(reserve_many, [(url, worker, 20) for worker in range(10)], chunksize=1)
        granted = {key for keys in asked.get(timeout=300) for key in keys}  # a deadlock would last for ever
    ledger = Ledger(url)
    assert ledger.verify() == []
    entries = ledger.entries("people")
    reserved = [e.key for e in entries if e.event == "reserve"]
    assert len(reserved) == len(set(reserved))
    assert set(reserved) == granted
    total, most = Fraction(0), Fraction(0)
    for entry in entries:
        total += {"reserve": 1, "cancel": -1}.get(entry.event, 0) * entry.rho
        most = max(most, total)
    assert most == CAP_RHO  # full to the last fiftieth at some time, and never more
    assert ledger.summary("people")[0].rho == total


# SQLite files: permissions and damage


def test_the_file_is_private(tmp_path):
    path = tmp_path / "new" / "folder" / "ledger.sqlite"
    Ledger(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"this is not a database, not at all" * 50, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="backup"):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_file_damaged_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.register("people", CAP)
    for i in range(60):
        ledger.reserve("people", f"run-{i}", [line(f"k{i}", "1/100")])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    with pytest.raises(LedgerError):
        Ledger(path).reserve("people", "run-x", [line("x", "1/100")])


@pytest.fixture
def unprivileged():
    """A folder outside pytest's private one, and an effective user that permissions apply to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o700)
        shutil.rmtree(folder)


def test_a_read_only_file_is_refused(unprivileged):
    path = unprivileged / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.register("people", CAP)
    path.chmod(0o400)
    with pytest.raises(LedgerError, match="cannot be opened for writing"):
        ledger.reserve("people", "run-1", [line("a")])
    with pytest.raises(LedgerError, match="right to write"):
        Ledger(path)


def test_a_folder_without_permission_is_refused(unprivileged):
    folder = unprivileged / "closed"
    folder.mkdir(mode=0o500)
    for path in (folder / "ledger.sqlite", folder / "below" / "ledger.sqlite"):
        with pytest.raises(LedgerError, match="right to write"):
            Ledger(path)


def test_a_lock_held_too_long_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path, timeout=0.2)
    ledger.register("people", CAP)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked by another process"):
        ledger.reserve("people", "run-1", [line("a")])
    other.execute("ROLLBACK")
    other.close()
    ledger.reserve("people", "run-1", [line("a")])


@pytest.mark.parametrize("address", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "what://"])
def test_a_ledger_that_would_not_last_is_refused(address):
    with pytest.raises(RequestError, match=r"^PRIVSYN_LEDGER: "):
        Ledger(address)


def test_an_unreachable_server_is_a_clear_error_without_the_password(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("privsyn.ledgers.database.RESTART_SECONDS", 0.5)
    with pytest.raises(LedgerError) as error:
        Ledger("postgresql://user:hunter2@127.0.0.1:1/none", timeout=2)
    assert "hunter2" not in str(error.value) and "127.0.0.1" in str(error.value)


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of calls leaves the ledger equal to a plain dictionary's account of it."""

    keys = st.sampled_from("abcdef")
    prices: ClassVar = {key: CAP_RHO * Fraction(i + 1, 12) for i, key in enumerate("abcdef")}

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.ledger = Ledger(Path(self.folder) / "ledger.sqlite")
        self.ledger.register("people", CAP)
        self.states: dict[str, str] = {}
        self.total = Fraction(0)

    @rule(keys=st.lists(keys, max_size=3))
    def reserve(self, keys):
        new = {k for k in keys if self.states.get(k) not in ("reserved", "spent")}
        asked = sum((self.prices[k] for k in new), Fraction(0))
        lines = [ChargeLine("step", k, self.prices[k]) for k in keys]
        if self.total + asked > CAP_RHO:
            with pytest.raises(BudgetRefusedError):
                self.ledger.reserve("people", "run", lines)
        else:
            self.ledger.reserve("people", "run", lines)
            self.states.update(dict.fromkeys(new, "reserved"))
            self.total += asked

    @rule(key=keys)
    def settle(self, key):
        if self.states.get(key) in ("reserved", "spent"):
            self.ledger.settle("people", key)
            self.states[key] = "spent"
        else:
            with pytest.raises(LedgerError):
                self.ledger.settle("people", key)

    @rule(key=keys, touched=st.booleans())
    def abandon(self, key, touched):
        after = "abandoned" if touched else "cancelled"
        if self.states.get(key) not in ("reserved", after):
            with pytest.raises(LedgerError):
                self.ledger.abandon("people", key, touched)
            return
        self.ledger.abandon("people", key, touched)
        if self.states[key] == "reserved" and not touched:
            self.total -= self.prices[key]
        self.states[key] = after

    @invariant()
    def agrees(self):
        assert self.ledger.summary("people")[0].rho == self.total <= CAP_RHO
        assert {k: self.ledger.state("people", k) for k in self.states} == self.states
        assert self.ledger.verify() == []

    def teardown(self):
        shutil.rmtree(self.folder)


LedgerMachine.TestCase.settings = settings(
    max_examples=choose_example_count(20),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestAnySequence = LedgerMachine.TestCase

"""A run by itself: reserve, draw, claim, look, write, settle, in that order, on one step with rows made here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from privsyn.base.errors import LedgerError, PrivsynError
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind, Zone
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.engine.execute import Run, StepFailedError
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, ReleaseStep, Step
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.records import Records
from privsyn.storage.store import Store
from privsyn.tasks.estimation import noisy
from privsyn.tasks.privacy.accountant import cap_accountant
from privsyn.tasks.privacy.noise import OpenDPNoise, SeededNoise
from tests.support.specs import make_spec

COUNTS = np.array([5, 7, 11], dtype=np.int64)
KEY = "0" * 64


@dataclass(frozen=True, kw_only=True)
class CountsStep(ReleaseStep):
    """A release step whose private rows are ``COUNTS``; ``events``: what happened, in order."""

    events: list[str] = field(default_factory=list)

    def read_rows(self, request: Request, inputs: Inputs) -> Any:
        """Return the rows, noting the look."""
        assert inputs.private is not None
        self.events.append("look")
        return COUNTS


def ask(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    return [Query(("age",), COUNTS.size, 1, compute_sigma(rho, 1))]


def count(request: Request, inputs: Inputs, rows: Any, queries: list[Query]) -> Iterator[Any]:
    yield from (rows for _ in queries)


class Setting:
    """A run of one release step, in a folder, with everything that it calls noted in ``events``."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.events: list[str] = []
        self.noise = changes.pop("noise", None) or OpenDPNoise()
        self.step = CountsStep(
            events=self.events,
            **{
                "name": "counts",
                "title": "Counts",
                "measures": LookKind.ONE_WAYS,
                "shares": {"counts": Fraction(1)},
                "inputs": (),
                "outputs": {"noisy": tables.NOISY, "receipts": tables.RECEIPTS},
                "plan": ask,
                "exact": count,
                "look": LookDescription(counted="counts", reason=lambda r: "k"),
                "rows": "",
                **changes,
            },
        )
        self.request = Request(make_spec())
        self.store = Store(folder / "private", folder / "released", "people")
        self.records = Records(folder / "private", "people")
        self.ledger = Ledger(folder / "ledger.sqlite")
        spec = self.request.spec
        self.ledger.register("people", spec.budget, cap_accountant(spec.effective_accountant))
        for owner, name in ((Ledger, "reserve"), (Ledger, "claim"), (Ledger, "settle"), (Records, "keep_noise")):
            self.note(monkeypatch, owner, name)
        self.note(monkeypatch, type(self.noise), "draw")
        self.note(monkeypatch, Store, "write_table")

    def note(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            self.events.append(name)
            return function(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)

    def run(self) -> Run:
        return Run(
            plan=Plan(self.request, (self.step,)),
            private=PrivateAccess(lambda repairs: iter(())),
            keys={"counts": KEY},
            name="people-1",
            store=self.store,
            records=self.records,
            ledger=self.ledger,
            noise=self.noise,
        )

    def follow(self, table: str, does: Callable[..., Any]) -> tuple[Run, Step]:
        """The run with a further step, which reads a table of the first one and makes such a table, and that step."""
        after = Step(
            name="after",
            title="After",
            kind=StepKind.POSTPROCESS,
            inputs=(f"counts.{table}",),
            outputs={table: self.step.outputs[table]},
            run=does,
        )
        run = self.run()
        plan = Plan(self.request, (self.step, after))
        return replace(run, plan=plan, keys={**run.keys, "after": "1" * 64}), after

    def reserve(self) -> None:
        lines = self.run().list_unsettled_charges()
        self.ledger.reserve("people", "people-1", lines, self.request.spec.privacy.delta)

    def state(self) -> str | None:
        return self.ledger.state("people", KEY)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """The usual step, with its price reserved."""
    made = Setting(tmp_path, monkeypatch)
    made.reserve()
    return made


def test_the_order_is_reserve_draw_claim_look_write_settle(here: Setting) -> None:
    here.run().execute(here.step, {})
    assert here.events == [
        "reserve", "draw", "keep_noise", "claim", "look", "write_table", "write_table", "settle"
    ]  # fmt: skip
    assert here.state() == "spent"


def test_nothing_is_drawn_or_read_before_the_reservation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Setting(tmp_path, monkeypatch)
    with pytest.raises(LedgerError, match="no reservation"):
        here.run().execute(here.step, {})
    assert here.events == [] and here.state() is None


def test_a_second_run_of_a_settled_step_does_nothing(here: Setting) -> None:
    first = here.run().execute(here.step, {})
    before = list(here.events)
    assert here.run().execute(here.step, {}) == first
    assert here.events == before and here.run().list_unsettled_charges() == []


def test_a_look_that_fails_settles_nothing_and_the_next_takes_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [True]

    def exact(request: Request, inputs: Inputs, rows: Any, queries: list[Query]) -> Iterator[Any]:
        if failing[0]:
            raise ValueError("the value 4711 is private")
        yield from count(request, inputs, rows, queries)

    here = Setting(tmp_path, monkeypatch, exact=exact)
    here.reserve()
    with pytest.raises(StepFailedError) as failed:
        here.run().execute(here.step, {})
    assert "4711" not in str(failed.value)
    assert "settle" not in here.events and "write_table" not in here.events and here.state() == "reserved"
    kept = here.records.kept_noise(KEY)
    assert kept is not None
    here.run().give_back()
    assert here.state() == "reserved"  # its noise is drawn: the charge stays, and the next run draws on it
    failing[0] = False
    refs = here.run().execute(here.step, {})
    assert here.events.count("draw") == 1 and here.state() == "spent"
    table = here.store.read_table(refs.tables["noisy"])
    queries = here.run().plan_queries(here.step, {})
    (answer,), (noise,) = noisy.read_answers(table, queries), noisy.read_answers(kept, queries)
    assert (answer == COUNTS + noise).all()
    assert here.records.kept_noise(KEY) is None


def test_a_draw_that_fails_reads_nothing_and_gives_its_charge_back(
    here: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenDPNoise, "draw", lambda *arguments: 1 / 0)
    with pytest.raises(StepFailedError):
        here.run().execute(here.step, {})
    assert "look" not in here.events and "claim" not in here.events
    here.run().give_back()
    assert here.state() not in ("reserved", "spent")


def test_queries_that_cost_more_than_the_reservation_are_refused_before_the_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Setting(tmp_path, monkeypatch, plan=lambda r, i, rho: ask(r, i, 2 * rho))
    here.reserve()
    with pytest.raises(PrivsynError, match="budget"):
        here.run().execute(here.step, {})
    assert here.events == ["reserve"]


def test_noise_that_was_kept_for_other_queries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["age"]

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        return [replace(query, attributes=tuple(asked)) for query in ask(request, inputs, rho)]

    here = Setting(tmp_path, monkeypatch, plan=plan, exact=lambda *arguments: 1 / 0)
    here.reserve()
    with pytest.raises(StepFailedError):
        here.run().execute(here.step, {})
    asked[:] = ["region"]
    with pytest.raises(LedgerError, match="drawn for other queries"):
        here.run().execute(here.step, {})
    assert "settle" not in here.events and here.events.count("draw") == 1


def test_what_the_step_publishes_lies_in_the_private_root_until_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded noise is kept out of the released root: the run writes nothing there, and publishing refuses it."""
    here = Setting(tmp_path, monkeypatch, noise=SeededNoise(1))
    here.reserve()
    refs = here.run().execute(here.step, {})
    assert {ref.zone for ref in refs.tables.values()} == {Zone.RELEASED}  # of the table, not of its folder
    assert [path for path in (tmp_path / "released").rglob("*") if path.is_file()] == []


def test_a_plan_and_post_processing_have_no_access_to_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def peek(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        with pytest.raises(TypeError, match="no access"):
            _ = inputs.private
        looked.append("plan")
        return ask(request, inputs, rho)

    here = Setting(tmp_path, monkeypatch, plan=peek)
    here.reserve()
    run, after = here.follow("receipts", lambda r, inputs, progress: looked.append("after") or {"r": inputs.private})
    refs = run.execute(here.step, {})
    with pytest.raises(StepFailedError, match="TypeError"):
        run.execute(after, {"counts": refs})
    assert looked == ["plan", "after"]


def test_a_table_that_was_changed_on_disk_is_not_read(here: Setting) -> None:
    refs = here.run().execute(here.step, {})
    for ref in refs.tables.values():
        Path(ref.path).write_bytes(b"other")
    assert [step.name for step in here.run().list_lost_steps()] == ["counts"]
    with pytest.raises(PrivsynError, match="paid for"):
        here.run().list_unsettled_charges()


class KilledError(BaseException):
    """The end of the process, as far as the code can see it."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", ["draw", "keep_noise", "claim", "write_table", "settle"])
def test_a_run_killed_at_any_call_goes_on_with_one_draw_and_one_charge(
    call: str, after: bool, here: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"draw": OpenDPNoise, "keep_noise": Records, "write_table": Store}.get(call, Ledger)
    function: Callable[..., Any] = getattr(owner, call)

    def killed(*arguments: Any, **named: Any) -> Any:
        if after:
            function(*arguments, **named)
        raise KilledError

    with monkeypatch.context() as once:
        once.setattr(owner, call, killed)
        with pytest.raises(KilledError):
            here.run().execute(here.step, {})
    before_the_noise_was_kept = call == "draw" or (call == "keep_noise" and not after)
    kept = None if before_the_noise_was_kept else here.records.kept_noise(KEY)
    assert "look" not in here.events or kept is not None
    refs = here.run().execute(here.step, {})
    assert here.state() == "spent" and here.records.kept_noise(KEY) is None
    assert here.run().list_unsettled_charges() == []
    if kept is not None:
        assert here.events.count("draw") == 1
        queries = here.run().plan_queries(here.step, {})
        (answer,) = noisy.read_answers(here.store.read_table(refs.tables["noisy"]), queries)
        (noise,) = noisy.read_answers(kept, queries)
        assert (answer == COUNTS + noise).all()


def list_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and "ledger" not in path.name}


@pytest.mark.parametrize("fault", ["an error", "a table that breaks its contract"])
def test_a_failing_step_leaves_no_table_and_no_record(fault: str, here: Setting, tmp_path: Path) -> None:
    def fail(request: Request, inputs: Inputs, progress: Any) -> dict[str, Any]:
        if fault == "an error":
            raise ValueError("the value 4711")
        receipts = inputs.table("counts.receipts")
        return {"receipts": receipts.set_column(receipts.schema.get_field_index("sigma"), "sigma", [[-1.0]])}

    both, after = here.follow("receipts", fail)
    refs = both.execute(here.step, {})
    before = list_files(tmp_path)
    with pytest.raises(PrivsynError) as failed:
        both.execute(after, {"counts": refs})
    assert "4711" not in str(failed.value)
    assert list_files(tmp_path) == before and not both.is_whole(after) and both.is_whole(here.step)


def test_a_step_reads_unchanged_tables_of_its_own_runs_keys_only(here: Setting) -> None:
    both, after = here.follow("noisy", lambda r, inputs, progress: {"noisy": inputs.table("counts.noisy")})
    refs = both.execute(here.step, {})
    with pytest.raises(PrivsynError, match="from another run"):
        both.execute(after, {"counts": refs.model_copy(update={"key": "f" * 64})})
    table = Path(refs.tables["noisy"].path)
    whole = table.read_bytes()
    pq.write_table(pq.read_table(table).slice(1), table)
    with pytest.raises(PrivsynError, match="changed"):
        both.execute(after, {"counts": refs})
    assert not both.is_whole(after)
    table.write_bytes(whole)
    assert both.execute(after, {"counts": refs}).key == "1" * 64

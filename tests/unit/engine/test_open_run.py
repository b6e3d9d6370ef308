"""A run: what is opened before each list of checks; what is reserved, given back, kept and noted, however it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from privsyn.api.release import propose_release
from privsyn.base.errors import BudgetRefusedError, RequestError
from privsyn.base.settings import Settings
from privsyn.engine import admission, checks
from privsyn.engine import open_run as opening_run
from privsyn.engine.execute import Run
from privsyn.engine.keys import read_generation
from privsyn.engine.open_run import open_run
from privsyn.engine.proposal import Proposal
from privsyn.engine.step import release_steps, run_steps
from privsyn.ledgers.ledger import Ledger
from tests.support.releases import few
from tests.support.specs import people

Ask = Callable[..., Proposal]


@pytest.fixture
def ask(places: Path, save: Callable[..., str]) -> Ask:
    """A proposal made anew, for one request on one table."""
    data = save(people(60))

    def build(**changes: Any) -> Proposal:
        return propose_release(few(data, **changes), Settings())

    return build


def states(run: Run) -> list[str | None]:
    """Where the charges of the run's release steps stand, in order."""
    return [run.ledger.state(run.dataset, run.keys[step.name]) for step in run.release_steps]


def run_until(run: Run, last: str) -> None:
    """Run the steps up to the one of this name."""
    names = [step.name for step in run.steps]
    run_steps(run.steps[: names.index(last) + 1], run.execute)


def test_the_whole_price_is_reserved_before_the_block_and_nothing_is_drawn(ask: Ask) -> None:
    with open_run(ask()) as run:
        assert states(run) == ["reserved"] * 3
        assert run.ledger.summary("people")[0].rho == sum(step.rho(run.request) for step in run.release_steps)
        assert run.drawn == [] and (run.private_folder / "run.json").is_file()
        assert not read_generation(run.records, run.keys, run.steps).finished


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_block_that_fails_gives_back_what_it_has_not_drawn(ask: Ask, error: type[BaseException]) -> None:
    with pytest.raises(error), open_run(ask()) as run:
        raise error
    assert states(run) == ["cancelled"] * 3 and run.ledger.summary("people")[0].rho == 0
    with pytest.raises(error), open_run(ask()) as run:
        run_until(run, "one_way_marginals")
        raise error
    assert states(run) == ["spent", "cancelled", "cancelled"]
    assert run.ledger.summary("people")[0].rho == run.release_steps[0].rho(run.request)


def test_the_next_that_asks_for_the_same_goes_on_with_the_same_run(ask: Ask) -> None:
    with suppress(RuntimeError), open_run(ask()) as first:
        run_until(first, "one_way_marginals")
        raise RuntimeError
    with open_run(ask()) as second:
        assert (second.name, second.keys) == (first.name, first.keys)
        assert states(second) == ["spent", "reserved", "reserved"]
        run_steps(second.steps, second.execute)
    assert second.drawn == [step.name for step in release_steps(second.steps)[1:]]
    with open_run(ask()) as third:
        assert read_generation(third.records, third.keys, third.steps).finished
        assert third.list_unsettled_charges() == [] and third.name == first.name


def test_a_price_above_the_cap_is_refused_with_nothing_reserved(ask: Ask) -> None:
    dear = ask(privacy={"epsilon": 1e3, "delta": 1e-9})
    with pytest.raises(BudgetRefusedError), open_run(dear):
        pytest.fail("it was opened")
    assert Ledger(dear.settings.ledger).summary("people") == []


def test_two_of_one_data_set_are_open_one_after_the_other(ask: Ask) -> None:
    order: list[str] = []

    def open_second() -> None:
        with open_run(ask()) as run:
            order.append("second")
            assert states(run) == ["reserved"] * 3

    with open_run(ask()) as run:
        waits = threading.Thread(target=open_second)
        waits.start()
        waits.join(0.5)
        order.append("first")
        run_steps(run.steps[:1], run.execute)
    waits.join(60)
    assert not waits.is_alive() and order == ["first", "second"]


def test_fresh_noise_is_another_run_at_another_price(ask: Ask) -> None:
    with open_run(ask()) as first:
        run_steps(first.steps, first.execute)
    with open_run(replace(ask(), fresh=True)) as second:
        assert second.name != first.name and states(second) == ["reserved"] * 3
        assert [step.name for step in second.steps if second.keys[step.name] == first.keys[step.name]] == ["encode"]


def test_steps_run_in_order_on_what_the_steps_of_their_declared_inputs_made(ask: Ask) -> None:
    steps, told = ask().plan.steps, list[tuple[str, dict[str, str]]]()

    def run(step: Any, inputs: Any) -> str:
        told.append((step.name, dict(inputs)))
        return f"made by {step.name}"

    made = run_steps(steps, run)
    assert made == {step.name: f"made by {step.name}" for step in steps}
    declared = [(step.name, {table.split(".")[0] for table in step.inputs}) for step in steps]
    assert told == [(name, {of: f"made by {of}" for of in producers}) for name, producers in declared]
    with pytest.raises(LookupError, match="encode"):
        run_steps(steps[1:], lambda step, inputs: pytest.fail("it ran"))


OPENED = {"open_store": admission, "open_books": admission, "open_table": admission, "prepare_runs": opening_run}
"""What a desk and a run open, in their order, and the module that opens it."""

LISTS = {
    "REQUEST_CHECKS": 0,
    "LEDGER_CHECKS": 2,
    "TABLE_CHECKS": 3,
    "DATA_CHECKS": 3,
    "RUN_CHECKS": 4,
    "CHARGE_CHECKS": 4,
}
"""The lists in their order, each with how much is open by its end."""


@pytest.fixture
def proposal(places: Path, save: Callable[..., str]) -> Proposal:
    return propose_release(few(save(people(60))), Settings())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was opened, in its order."""
    names: list[str] = []
    for name, module in OPENED.items():

        def note(*arguments: Any, name: str = name, real: Any = getattr(module, name)) -> Any:  # noqa: B008
            names.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, note)
    return names


@pytest.mark.parametrize("listed", LISTS)
def test_a_refusal_opens_nothing_that_comes_after_and_enters_nothing(
    proposal: Proposal, opened: list[str], monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    def refuse(*handed: object) -> None:
        raise RequestError("no", "no")

    monkeypatch.setattr(admission, listed, (*getattr(admission, listed), refuse))
    with pytest.raises(RequestError), open_run(proposal):
        pytest.fail("it was opened")
    assert opened == list(OPENED)[: LISTS[listed]]
    assert proposal.settings.private_root.exists() == bool(opened)
    assert Path(proposal.settings.ledger).exists() == ("open_books" in opened)
    assert not opened or Ledger(proposal.settings.ledger).summary("people") == []


def test_a_request_is_checked_without_a_run(proposal: Proposal, opened: list[str]) -> None:
    admission.check_request(proposal)
    assert opened == list(OPENED)[:3]
    assert Ledger(proposal.settings.ledger).summary("people") == []


def test_the_lists_are_every_check_there_is_in_one_order() -> None:
    listed = [check.__name__ for name in LISTS for check in getattr(admission, name)]
    there = [
        name
        for name, value in vars(checks).items()
        if getattr(value, "__module__", "") == checks.__name__
        and name.startswith("check_")
        and {"Proposal", "Draw"} & set(value.__annotations__.values())
    ]
    assert [name for name in listed if name != "check_policy"] == there


def test_a_table_in_memory_is_the_candidates_and_not_the_specs(places: Path) -> None:
    table = pa.table(people(20))
    asked = propose_release(few("elsewhere.parquet"), Settings(), data=table)
    assert (asked.spec.data, asked.data) == ("", table)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("rows/people.csv", "rows/people.csv"),
        ("sqlite:////rows/people.db?table=people", "/rows/people.db"),
        ("DELTA:////rows/people?version=3", "/rows/people"),
        ("delta+s3://bucket/people", None),
        ("s3://bucket/people.parquet", None),
        ("postgresql+psycopg://host/ledger", None),
    ],
)
def test_a_table_s_or_a_ledger_s_file_is_found_by_its_name(name: str, file: str | None) -> None:
    assert checks._locate_file(name) == (None if file is None else Path(file))

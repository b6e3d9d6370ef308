"""A run's opening and end by themselves: what is reserved, given back, kept and noted, however the block ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privsyn.api.release import propose_release
from privsyn.base.errors import BudgetRefusedError
from privsyn.base.settings import Settings
from privsyn.engine.execute import Run
from privsyn.engine.keys import read_generation
from privsyn.engine.open_run import open_run
from privsyn.engine.proposal import Proposal
from privsyn.engine.step import release_steps
from privsyn.engine.step_list import run_steps
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

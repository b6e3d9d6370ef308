"""Bug classes 6, 8 and 13: what is drawn is what is paid for, all of it, and once.

It does not see the spending of looks beyond the default three, of other mechanisms, linked rows, linked tables,
periods, improved releases and figures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, dp_event
from dp_accounting.rdp import RdpAccountant

from privsyn.base.errors import LedgerError, PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine import plan
from privsyn.engine.execute import Run
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines import registry
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.folder import ReleaseSummary
from privsyn.storage.records import Records
from privsyn.storage.store import Store
from privsyn.tasks.estimation import noisy
from privsyn.tasks.privacy.accountant import convert_rho_to_epsilon
from privsyn.tasks.privacy.noise import NoNoise
from privsyn.tasks.steps import measure_marginals, score_columns
from tests.support.examples import keep_first
from tests.support.releases import few, released, run
from tests.support.specs import people

Save = Callable[..., str]
LOOKS = tuple(step.name for step in STEPS if isinstance(step, ReleaseStep))
PLANNERS = (measure_marginals, score_columns)


def queries_of(summary: ReleaseSummary) -> list[Query]:
    """All receipts of a run, in the order of its looks."""
    names = ("one_way_receipts", "scores_receipts", "measured_receipts")
    return [q for name in names for q in noisy.read_receipts(released(summary, f"marginals/{name}.parquet"))]


def reserved(dataset: str = "people") -> Fraction:
    """What the ledger holds for the data set."""
    return sum((e.rho for e in Ledger(Settings().ledger).entries(dataset) if e.event == "reserve"), Fraction(0))


# 6: rho used where sigma belongs


class Recording(NoNoise):
    """No noise; keeps what was asked for, a cell at a time."""

    def __init__(self) -> None:
        self.sigmas: list[float] = []

    def draw(self, sigma: float, cells: int) -> np.ndarray:
        self.sigmas += [sigma] * cells
        return super().draw(sigma, cells)


def part_of_the_ledger_that_was_drawn(spec: ReleaseSpec) -> float:
    """rho of the noise that was really asked for, by hand, in units of what the ledger holds: 1 but for rounding."""
    recording = Recording()
    queries = queries_of(run(spec, noise=recording))
    smoothing = 3 if spec.effective_accountant == "gaussian" else 0
    rho, start = 0.0, 0
    for query in queries:
        (sigma,) = set(recording.sigmas[start : start + query.cells])
        rho += query.sensitivity**2 / (2 * (sigma**2 - smoothing))
        start += query.cells
    assert start == len(recording.sigmas)
    return rho / float(reserved())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_06_the_drawn_noise_costs_what_the_ledger_holds(places: Path, save: Save, epsilon: float) -> None:
    spec = few(save(people(300)), privacy={"epsilon": epsilon, "delta": 1e-9}, unit={"records_per_person": 2})
    assert part_of_the_ledger_that_was_drawn(spec) == pytest.approx(1, abs=1e-5)


MUTANT_SIGMAS: dict[str, Callable[..., float]] = {
    "rho for sigma": lambda rho, sensitivity, *how: float(rho) * sensitivity,
    "variance for sigma": lambda rho, sensitivity, *how: sensitivity**2 / (2 * float(rho)),
    "two left out": lambda rho, sensitivity, *how: sensitivity / math.sqrt(float(rho)),
    "sensitivity left out": lambda rho, sensitivity, *how: compute_sigma(rho, 1, *how),
}


@pytest.mark.parametrize("mutant", MUTANT_SIGMAS.values(), ids=list(MUTANT_SIGMAS))
def test_06_mutant_another_sigma(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., float]
) -> None:
    """Planted mutants of the one function that makes sigma: the price check refuses them before any look."""
    looks: list[int] = []
    monkeypatch.setattr(ReleaseStep, "read_rows", lambda *arguments: looks.append(1))
    for module in PLANNERS:
        monkeypatch.setattr(module, "compute_sigma", mutant)
    spec = few(save(people(300)), unit={"records_per_person": 2})
    with pytest.raises(PrivsynError):
        run(spec)
    assert looks == []
    assert list(Settings().released_root.iterdir()) == []


def test_06_mutant_receipts_of_less_noise_than_was_paid_for(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted mutant: between the price check of the plan and the settling, the noise is halved."""
    original = noisy.tabulate_receipts
    monkeypatch.setattr(noisy, "tabulate_receipts", lambda qs: original([replace(q, sigma=q.sigma / 2) for q in qs]))
    with pytest.raises(LedgerError, match="cost more than their reservation"):
        run(few(save(people(300))))
    assert list(Settings().released_root.iterdir()) == []


# 8: spend left out or wrong


def promised_and_kept(summary: ReleaseSummary) -> tuple[float, float]:
    """The epsilon that was declared, and an upper bound by an accountant that is not ours, from the receipts alone."""
    orders = 1 + np.exp(np.linspace(math.log(1e-2), math.log(1e4), 1_000))
    events = [GaussianDpEvent(q.sigma / q.sensitivity) for q in queries_of(summary)]
    accountant = RdpAccountant(orders=orders).compose(dp_event.ComposedDpEvent(events))
    return summary.epsilon, float(accountant.get_epsilon(summary.delta))


def test_08_a_second_accountant_agrees_with_ledger_and_certificate(places: Path, save: Save) -> None:
    """Its bound for the noise that was drawn, all looks together, is the declared epsilon, and so is the ledger's."""
    spec = few(save(people(300)), accountant="tight")
    declared, kept = promised_and_kept(run(spec))
    assert 0.99 * declared <= kept <= declared * 1.001  # the grid of orders is no finer
    assert convert_rho_to_epsilon(reserved(), spec.privacy.delta, "tight") == pytest.approx(declared, rel=1e-6)


def test_08_mutant_one_ways_that_are_not_paid_for(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the one-ways draw the noise of the whole budget; the price check left out, the figures differ."""
    plan = measure_marginals.plan_one_ways

    def for_all_of_it(domain: Any, rho: Fraction, records: int, **how: Any) -> list[Query]:
        return plan(domain, rho / Fraction(1, 4), records, **how)

    monkeypatch.setattr(measure_marginals, "plan_one_ways", for_all_of_it)
    spec = few(save(people(300)), accountant="tight")
    with pytest.raises(PrivsynError, match="breaks its budget"):
        run(spec)
    assert list(Settings().released_root.iterdir()) == []
    monkeypatch.setattr("privsyn.engine.execute.check_stage", lambda *arguments: None)
    monkeypatch.setattr("privsyn.engine.execute.sum_rho", lambda queries: 0)
    declared, kept = promised_and_kept(run(spec))
    assert kept > 1.1 * declared


def shares_of_more_than_all(request: Request) -> dict[str, Fraction]:
    """PrivSyn's, but the scores have the share of the one-ways besides."""
    return {**split_budget(request), "indif_scores": Fraction(27, 100)}


def test_08_mutant_shares_that_sum_to_more_than_1(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: a mechanism whose looks cost more than the promise; without the check the ledger holds more."""
    monkeypatch.setattr(registry, "split_budget", shares_of_more_than_all)
    spec = few(save(people(300)))
    with pytest.raises(ValueError, match="1/4, 27/100, 73/100: they must sum to 1"):
        run(spec)
    assert Ledger(Settings().ledger).entries("people") == []
    assert not Settings().released_root.exists()
    for checked in (registry, plan):
        monkeypatch.setattr(checked, "check_shares", lambda *arguments: None)
    run(spec)
    assert reserved() == Request(spec).total_rho * Fraction(125, 100)


def order_of_events(spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a run does, in order."""
    events: list[str] = []

    def note(owner: Any, name: str, event: str) -> None:
        function = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            if event != "write" or named.get("name", arguments[3] if len(arguments) > 3 else "") == "noisy":
                events.append(event)
            return function(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)

    note(Ledger, "reserve", "reserve")
    note(Ledger, "settle", "settle")
    note(ReleaseStep, "read_rows", "look")
    note(Store, "write_table", "write")
    note(Run, "_draw_or_take_up_noise", "noise")
    note(Ledger, "claim", "claim")
    run(spec)
    return events


RIGHT_ORDER = ["reserve", *(["noise", "claim", "look", "write", "settle"] * len(LOOKS))]


def test_08_nothing_is_read_before_it_is_reserved(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    assert order_of_events(few(save(people(300))), monkeypatch) == RIGHT_ORDER


def test_08_mutant_a_look_before_the_noise(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the rows are read before the noise is drawn and kept."""
    draw = Run._take_look

    def look_first(shell: Run, step: ReleaseStep, inputs: Any) -> Any:
        step.read_rows(shell.request, shell._open_inputs(step, inputs))
        return draw(shell, step, inputs)

    monkeypatch.setattr(Run, "_take_look", look_first)
    assert order_of_events(few(save(people(300))), monkeypatch) != RIGHT_ORDER


def test_08_mutant_a_run_that_never_reserves(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: fails closed, before a look."""
    monkeypatch.setattr(Ledger, "reserve", lambda *arguments, **named: None)
    looks: list[int] = []
    monkeypatch.setattr(ReleaseStep, "read_rows", lambda *arguments: looks.append(1))
    with pytest.raises(LedgerError, match="no reservation"):
        run(few(save(people(300))))
    assert looks == []
    assert list(Settings().released_root.iterdir()) == []


# 13: retry or cache spends twice.  By SIGKILL, and at every write: tests/flows/test_crash.py


class StoppedError(BaseException):
    """Power off, for a test in one process."""


STOPS: dict[str, tuple[Any, str, str]] = {
    "before the noise is kept": (Records, "keep_noise", "before"),
    "after the noise is kept": (Records, "keep_noise", "after"),
    "after the look": (ReleaseStep, "read_rows", "after"),
    "before the charge is settled": (Ledger, "settle", "before"),
    "after the charge is settled": (Ledger, "settle", "after"),
}


def noise_of_each_look(spec: ReleaseSpec, stop: tuple[Any, str, str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The noise that was drawn before each look, in a run that is stopped there once and in its re-run."""
    owner, name, when = stop
    drawn: list[Any] = []
    looked: list[Any] = []
    noise, read_rows = Run._draw_or_take_up_noise, ReleaseStep.read_rows

    def noted(shell: Run, *arguments: Any) -> Any:
        drawn.append(noise(shell, *arguments))
        return drawn[-1]

    def looking(step: ReleaseStep, *arguments: Any) -> Any:
        looked.append(tuple(int(n) for cells in drawn[-1] for n in cells))
        return read_rows(step, *arguments)

    monkeypatch.setattr(Run, "_draw_or_take_up_noise", noted)
    monkeypatch.setattr(ReleaseStep, "read_rows", looking)
    function = getattr(owner, name)

    def stopped(*arguments: Any, **named: Any) -> Any:
        if when == "after":
            function(*arguments, **named)
        raise StoppedError

    with monkeypatch.context() as once:
        once.setattr(owner, name, stopped)
        with pytest.raises(StoppedError):
            run(spec)
    run(spec)
    return looked


@pytest.mark.parametrize("stop", keep_first(STOPS.values(), 3), ids=list(STOPS))
def test_13_a_run_that_was_stopped_draws_and_pays_once(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch, stop: tuple[Any, str, str]
) -> None:
    """However often it looks, each look adds the one noise of its charge, and each charge is there once."""
    spec = few(save(people(300)))
    assert len(set(noise_of_each_look(spec, stop, monkeypatch))) == len(LOOKS)
    entries = Ledger(Settings().ledger).entries("people")
    keys = {event: Counter(e.key for e in entries if e.event == event) for event in ("reserve", "cancel", "spent")}
    assert keys["spent"] == keys["reserve"] - keys["cancel"]
    assert set(keys["spent"].values()) == {1} and len(keys["spent"]) == len(LOOKS)
    assert run(spec).drawn == ()
    assert Ledger(Settings().ledger).entries("people") == entries


def test_13_mutant_a_rerun_that_draws_again(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the kept noise is not looked for, so that one charge covers two draws on the same counts."""
    monkeypatch.setattr(Records, "kept_noise", lambda records, key: None)
    monkeypatch.setattr(Ledger, "claim", lambda *arguments: None)  # the ledger would refuse the second draw
    looked = noise_of_each_look(few(save(people(300))), STOPS["after the look"], monkeypatch)
    assert len(set(looked)) == len(LOOKS) + 1

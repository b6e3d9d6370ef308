"""Bug class 12: the progress shown of a step that goes through private rows does not say how many there are.

It does not see steps of linked rows, linked tables, other mechanisms and itemsets, nor how long a step takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from privsyn.data_contracts.artifacts import StepKind
from privsyn.engine.execute import Run
from privsyn.flows import run_page as progress
from privsyn.flows.run_page import StepProgress
from privsyn.pipelines.one_shot import STEPS


class Bars:
    """In Prefect's place: what it was told, in order; it may refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuse: bool = False) -> None:
        self.told: list[float] = []
        self.deleted: list[UUID] = []
        self.words = ""
        self.refuse = refuse
        monkeypatch.setattr(progress, "BAR_AFTER_SECONDS", 0.0)
        monkeypatch.setattr(progress, "BAR_EVERY_SECONDS", 0.001)
        monkeypatch.setattr(progress, "create_progress_artifact", self._create)
        monkeypatch.setattr(progress, "update_progress_artifact", self._update)
        monkeypatch.setattr(progress, "delete_bar", self.deleted.append)
        monkeypatch.setattr(progress, "get_run_logger", lambda: self)

    def _create(self, progress: float, key: str, description: str) -> UUID:
        if self.refuse:
            raise ConnectionError("zanzibar")
        self.words = description
        self.told.append(progress)
        return uuid4()

    def _update(self, artifact: UUID, progress: float) -> None:
        self.told.append(progress)

    def warning(self, text: str, *values: Any) -> None:
        self.words = text % values


def watch(bars: Bars, step: Any, total: int) -> list[float]:
    """What is told of a step that reports each of ``total`` parts, and waits for each to be told (or, a while, not)."""
    patience = 20 if step.kind is StepKind.TRANSFORM else 10_000
    with StepProgress(step) as bar:
        wait(bar, lambda: bool(bars.told) or bars.refuse, 10_000)
        for done in range(1, total + 1):
            seen = len(bars.told)
            bar.report(step.name, done, total)
            wait(bar, lambda seen=seen: len(bars.told) > seen or bars.refuse, patience)
    return bars.told


def wait(bar: StepProgress, enough: Callable[[], bool], most: int) -> None:
    for _ in range(most):
        if enough():
            return
        bar._done.wait(0.001)


of_kind = {kind: [step for step in STEPS if step.kind is kind] for kind in StepKind}


@pytest.mark.parametrize("step", of_kind[StepKind.TRANSFORM], ids=lambda step: step.name)
def test_12_progress_through_private_rows_tells_a_beginning_and_an_end(
    step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (watch(Bars(monkeypatch), step, total) for total in (2, 7))
    assert few == many == [0.0, 100.0]


def test_12_the_bar_of_a_step_that_ended_well_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = Bars(monkeypatch)
    watch(bars, of_kind[StepKind.RELEASE][0], 1)
    assert len(bars.deleted) == 1


@pytest.mark.parametrize("kind", StepKind)
def test_12_a_run_reports_parts_of_public_work_alone(kind: StepKind) -> None:
    """The bars of a terminal and a notebook show what a run reports."""
    told: list[tuple[str, int, int]] = []
    run: Any = SimpleNamespace(report=lambda *of: told.append(of))
    step = of_kind[kind][0]
    Run._progress(run, step)(2, 7)
    assert told == ([] if kind is StepKind.TRANSFORM else [(step.name, 2, 7)])


def test_12_mutant_progress_by_batches_of_private_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: a transform step that passes for a postprocess one tells how many batches it reads."""
    step = replace(of_kind[StepKind.TRANSFORM][0], kind=StepKind.POSTPROCESS)
    assert watch(Bars(monkeypatch), step, 2) != watch(Bars(monkeypatch), step, 7)


@pytest.mark.parametrize(
    "step", [of_kind[StepKind.RELEASE][0], of_kind[StepKind.POSTPROCESS][0]], ids=lambda step: step.name
)
def test_12_progress_of_public_work_is_told_in_full(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(Bars(monkeypatch), step, 4) == [0.0, 25.0, 50.0, 75.0, 100.0]


def test_12_progress_that_cannot_be_shown_fails_no_step_and_is_told_by_its_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bars = Bars(monkeypatch, refuse=True)
    assert watch(bars, STEPS[0], 1) == []
    assert bars.words == "The progress of Encode is not shown (ConnectionError)."


def test_12_progress_of_a_failed_step_stays_and_of_a_short_one_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    bars, step = Bars(monkeypatch), of_kind[StepKind.RELEASE][0]
    with pytest.raises(ZeroDivisionError), StepProgress(step) as bar:
        bar.report(step.name, 1, 4)
        wait(bar, lambda: 25.0 in bars.told, 10_000)
        raise ZeroDivisionError
    assert max(bars.told) == 25.0 and bars.deleted == []
    short = Bars(monkeypatch)
    monkeypatch.setattr(progress, "BAR_AFTER_SECONDS", 600.0)
    with StepProgress(step) as bar:
        bar.report(step.name, 1, 1)
    assert short.told == []

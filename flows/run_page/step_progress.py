"""Progress of long steps as Prefect artifacts, at no cost to the step and without private figures.

A release step reports answered and planned queries, and a postprocess step its iterations; both are public.  Progress
through private rows would reveal their number, so a transform step's bar jumps from 0 to 100 at the end.  The run time
shows anyway that a step is long; the promise does not cover it.
"""

from __future__ import annotations

from contextvars import copy_context
from threading import Event, Thread
from types import TracebackType
from typing import cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.orchestration import get_client

from privsyn.data_contracts.artifacts import StepKind
from privsyn.engine.step import Step

BAR_AFTER_SECONDS = 1.0
"""Seconds until a step is long enough for a bar."""

BAR_EVERY_SECONDS = 2.0
"""Seconds between two movements of it."""

_CLOSING = 5.0
"""Seconds that the end of a step waits for a slow server, at most."""

UNITS = {
    StepKind.RELEASE: "queries answered",
    StepKind.POSTPROCESS: "iterations done",
    StepKind.TRANSFORM: "it goes through private rows, so how far it is stays unsaid",
}


def delete_bar(artifact: UUID) -> None:
    """Remove a bar from the run's page."""
    with get_client(sync_client=True) as client:
        client.delete_artifact(artifact)


class StepProgress:
    """A context around a step's task; its bar, if any, belongs to the flow run in which it is entered.

    On the run's graph, a task run's bar covers the names of neighbouring steps, and a run's bar the lowest names.  So a
    bar is deleted when its step succeeds.  A separate thread talks to the server; the step only sets a number.  Nothing
    here fails a step.
    """

    def __init__(self, step: Step) -> None:
        self._step, self._percent = step, 0.0
        self._done, self._ended_well = Event(), False
        self._thread = Thread(target=copy_context().run, args=(self._show,), daemon=True)

    def report(self, step: str, done: int, total: int) -> None:
        """Record the step's progress, unless it depends on private rows."""
        if self._step.kind is not StepKind.TRANSFORM and total > 0:
            self._percent = 100.0 * min(done / total, 1.0)

    def __enter__(self) -> StepProgress:
        """Start to wait until the step counts as long."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Show the end of the bar, if any, and remove it; a failed step's bar stays."""
        if error is None:
            self._percent, self._ended_well = 100.0, True
        self._done.set()
        self._thread.join(_CLOSING)

    def _show(self) -> None:
        if self._done.wait(BAR_AFTER_SECONDS):
            return
        try:
            artifact, shown = self._begin(), 0.0
            while not self._done.wait(BAR_EVERY_SECONDS):
                shown = self._move(artifact, shown)
            self._move(artifact, shown)
            if self._ended_well:
                delete_bar(artifact)
        except Exception as error:  # a bar is not worth a step
            get_run_logger().warning("The progress of %s is not shown (%s).", self._step.title, type(error).__name__)

    def _begin(self) -> UUID:
        begun = create_progress_artifact(
            progress=0.0,
            key=f"progress-{self._step.name.replace('_', '-').lower()}",
            description=f"{self._step.title}: {UNITS[self._step.kind]}",
        )
        return cast(UUID, begun)  # a coroutine only where an event loop runs

    def _move(self, artifact: UUID, shown: float) -> float:
        percent = self._percent
        if percent != shown:
            update_progress_artifact(artifact, percent)
        return percent

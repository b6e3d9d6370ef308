"""What runs tell of themselves: traces of releases, evaluations and comparisons, and their lineage, as settings say.

A span has a step's name, kind and duration, and the type of the error that ended it.  An event has the names of a data
set and of released folders.  No path, size, count or error text is sent, because these may depend on private rows.  A
step's duration may depend on them too, as on a run's page; the promise does not cover durations.

The registry's group ``telemetry`` has the receivers, each by the name of the setting that says its address.  Nothing
that fails in one fails a run, but for a package that is not installed, which is said before the run begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Literal, TypeVar, cast

from privsyn.base.registry import load_part
from privsyn.base.settings import Settings

Job = Literal["release", "evaluation", "comparison"]
Tell = Callable[[str, str | None], None]
"""Tells the state of a run (START, FAIL, COMPLETE), and the name of the folder that it released."""

OpenSpan = Callable[[str, Mapping[str, str]], AbstractContextManager[None]]
"""Opens a span of a name with attributes."""

_logger = logging.getLogger(__name__)
_RunStep = TypeVar("_RunStep", bound=Callable[..., Any])


class Telemetry:
    """The receivers in the settings; does nothing without one.

    Raises RequestError if a receiver's package is missing or its address is invalid.
    """

    def __init__(self, settings: Settings) -> None:
        self._traces = _open_receiver("traces", settings)
        self._lineage = _open_receiver("lineage", settings)

    @contextmanager
    def observe(
        self, dataset: str, run: str, job: Job = "release", *, released: Sequence[str] = ()
    ) -> Iterator[Observed]:
        """Trace the block, and report its start and its end: complete, or failed by an exception.

        ``released``: names of released folders that it reads, next to the data set.
        """
        with ExitStack() as open_things:
            open_span = open_things.enter_context(self._traces.open_trace()) if self._traces else None
            if open_span is not None:
                open_things.enter_context(open_span(job, {"privsyn.dataset": dataset, "privsyn.run": run}))
            tell = self._lineage.begin(job, dataset, released) if self._lineage else None
            _attempt(tell, "START", None)
            observed = Observed(open_span)
            try:
                yield observed
            except BaseException:
                _attempt(tell, "FAIL", None)
                raise
            _attempt(tell, "COMPLETE", observed.released)


class Observed:
    """A run that is observed: what opens its spans, and the name of the folder that it released."""

    def __init__(self, open_span: OpenSpan | None) -> None:
        self._open_span = open_span
        self.released: str | None = None

    def trace(self, run: _RunStep) -> _RunStep:
        """Return what runs a step, as ``run`` does, with a span around each."""
        if self._open_span is None:
            return run

        def run_traced(step: Any, inputs: Any) -> Any:
            with self.span(step.name, str(step.kind)):
                return run(step, inputs)

        return cast(_RunStep, run_traced)

    def span(self, step: str, kind: str = "private") -> AbstractContextManager[None]:
        """Return the span of a step; its name must be public."""
        if self._open_span is None:
            return nullcontext()
        return self._open_span(step, {"privsyn.step": step, "privsyn.kind": kind})


def _open_receiver(name: str, settings: Settings) -> Any:
    """Return the receiver at the address that the setting ``name`` says; None where it says none."""
    address = getattr(settings, name)
    return load_part("telemetry", name, f"settings.{name}")(address) if address else None


def _attempt(tell: Tell | None, state: str, released: str | None) -> None:
    if tell is None:
        return
    try:
        tell(state, released)
    except Exception as error:  # the receiver's library may raise anything
        _logger.warning("A lineage event (%s) could not be delivered: %s.", state, type(error).__name__)

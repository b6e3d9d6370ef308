"""Traces (OpenTelemetry) and lineage (OpenLineage) of releases, evaluations and comparisons, if set.

A span has a step's name, kind and duration, and the type of the error that ended it.  An event has the names of a data
set and of released folders.  No path, size, count or error text is sent, because these may depend on private rows.  A
step's duration may depend on them too, as on a run's page; the promise does not cover durations.

Failures here never fail a run, except a missing package, which is reported before the run begins.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings

FLUSH_MILLISECONDS = 5_000
"""How long the end of a run waits for undelivered spans."""

NAMESPACE, RELEASED = "privsyn", "privsyn.released"
"""OpenLineage's namespaces of jobs and data sets, and of released folders."""

Job = Literal["release", "evaluation", "comparison"]
_Tell = Callable[[str, str | None], None]

_logger = logging.getLogger(__name__)
_RunStep = TypeVar("_RunStep", bound=Callable[..., Any])


class _Step(Protocol):
    """The attributes of a step that a span shows."""

    name: str
    kind: Any


class Telemetry:
    """The receivers in the settings; does nothing without one.

    Raises RequestError if a receiver's package is missing or its address is invalid.
    """

    def __init__(self, settings: Settings) -> None:
        self._traces = _open_traces(settings.traces) if settings.traces else None
        self._lineage = _open_lineage(settings.lineage) if settings.lineage else None

    @contextmanager
    def observe(
        self, dataset: str, run: str, job: Job = "release", *, released: Sequence[str] = ()
    ) -> Iterator[Observed]:
        """Trace the block, and report its start and its end: complete, or failed by an exception.

        ``released``: names of released folders that it reads, next to the data set.
        """
        with ExitStack() as open_things:
            tracer = open_things.enter_context(self._traces()) if self._traces else None
            if tracer is not None:
                open_things.enter_context(_span(tracer, job, {"privsyn.dataset": dataset, "privsyn.run": run}))
            tell = self._lineage(job, dataset, released) if self._lineage else None
            _attempt(tell, "START", None)
            observed = Observed(tracer)
            try:
                yield observed
            except BaseException:
                _attempt(tell, "FAIL", None)
                raise
            _attempt(tell, "COMPLETE", observed.released)


class Observed:
    """An observed run: its tracer, and the name of its released folder."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self.released: str | None = None

    def trace(self, run: _RunStep) -> _RunStep:
        """Return a function that runs steps like ``run``, each in a span."""
        if self._tracer is None:
            return run

        def run_traced(step: _Step, inputs: Any) -> Any:
            with self.span(step.name, str(step.kind)):
                return run(step, inputs)

        return cast(_RunStep, run_traced)

    def span(self, step: str, kind: str = "private") -> AbstractContextManager[None]:
        """Return the span of a step; the step's name must be public."""
        if self._tracer is None:
            return nullcontext()
        return _span(self._tracer, step, {"privsyn.step": step, "privsyn.kind": kind})


@contextmanager
def _span(tracer: Any, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
    """Open a span; an error records only its type, because its text may quote a row."""
    from opentelemetry.trace import Status, StatusCode

    with tracer.start_as_current_span(
        name, attributes=dict(attributes), record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def _attempt(tell: _Tell | None, state: str, released: str | None) -> None:
    if tell is None:
        return
    try:
        tell(state, released)
    except Exception as error:  # the receiver's library may raise anything
        _logger.warning("A lineage event (%s) could not be delivered: %s.", state, type(error).__name__)


def _open_traces(endpoint: str) -> Callable[[], Any]:
    """Return a function that opens a tracer, which sends its spans to ``endpoint`` until it is closed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise _make_missing("settings.traces", "OpenTelemetry", "traces") from None

    @contextmanager
    def open_tracer() -> Iterator[Any]:
        # a separate provider, so that other packages' traces are not sent
        provider = TracerProvider(
            resource=Resource.create({"service.name": "privsyn", "service.version": version("privsyn-flows")}),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=5)))
        try:
            yield provider.get_tracer("privsyn")
        finally:
            provider.force_flush(FLUSH_MILLISECONDS)
            provider.shutdown()

    return open_tracer


def _open_lineage(place: str) -> Callable[[Job, str, Sequence[str]], _Tell]:
    """Return a function that, given a job and its inputs, makes a sender of events to a web address or file."""
    try:
        from openlineage.client import event_v2 as events
        from openlineage.client.transport.file import FileConfig, FileTransport
        from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
        from openlineage.client.uuid import generate_new_uuid
    except ImportError:
        raise _make_missing("settings.lineage", "OpenLineage", "lineage") from None

    def open_transport() -> Any:
        if not place.startswith(("http://", "https://")):
            return FileTransport(FileConfig(log_file_path=str(Path(place).absolute()), append=True))
        key = os.environ.get("OPENLINEAGE_API_KEY")
        login: dict[str, Any] = {"auth": ApiKeyTokenProvider({"apiKey": key})} if key else {}
        return HttpTransport(HttpConfig(url=place, timeout=5.0, retry={"total": 1}, **login))

    def start(job: Job, dataset: str, released_before: Sequence[str]) -> _Tell:
        run, producer = str(generate_new_uuid()), f"urn:privsyn-flows:{version('privsyn-flows')}"

        def tell(state: str, released: str | None) -> None:
            event = events.RunEvent(
                eventTime=datetime.now(UTC).isoformat(),
                eventType=events.RunState[state],
                run=events.Run(runId=run),
                job=events.Job(namespace=NAMESPACE, name=job),
                inputs=[
                    events.InputDataset(namespace=NAMESPACE, name=dataset),
                    *(events.InputDataset(namespace=RELEASED, name=name) for name in released_before),
                ],
                outputs=[events.OutputDataset(namespace=RELEASED, name=released)] if released else [],
                producer=producer,
            )
            open_transport().emit(event)

        return tell

    return start


def _make_missing(setting: str, package: str, extra: str) -> RequestError:
    return RequestError(
        f"needs {package}, which is not installed", f"Install privsyn-flows[{extra}], or leave it out", setting
    )

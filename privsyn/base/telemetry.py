"""Traces of releases, evaluations and comparisons (OpenTelemetry) and their lineage (OpenLineage), where settings say.

A span says a step's name and kind, how long it took, and the type of the error that ended it; an event says the names
of a data set and of released folders.  No path, size, count or error text leaves: these may depend on private rows.
How long a step took may, too, as on the page of a run; the promise does not cover it.

Nothing that fails here fails a run, but for a package that is not installed, which is said before it begins.
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
"""How long the end of a run waits for spans that are not delivered yet."""

NAMESPACE, RELEASED = "privsyn", "privsyn.released"
"""OpenLineage's namespaces of jobs and data sets, and of released folders."""

Job = Literal["release", "evaluation", "comparison"]
_Tell = Callable[[str, str | None], None]

_logger = logging.getLogger(__name__)
_RunStep = TypeVar("_RunStep", bound=Callable[..., Any])


class _Step(Protocol):
    """What a span says of a step."""

    name: str
    kind: Any


class Telemetry:
    """The receivers that the settings name; without one, it does nothing.

    Raises RequestError for a receiver whose package is not installed, or for an address that it does not take.
    """

    def __init__(self, settings: Settings) -> None:
        self._traces = _open_traces(settings.traces) if settings.traces else None
        self._lineage = _open_lineage(settings.lineage) if settings.lineage else None

    @contextmanager
    def observe(
        self, dataset: str, run: str, job: Job = "release", *, released: Sequence[str] = ()
    ) -> Iterator[Observed]:
        """Trace what runs in the block, and tell of its begin and its end: complete, or failed by an exception.

        ``released``: names of released folders that it reads beside the data set.
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
    """A run that is observed: its tracer, and the name of the folder that it released."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self.released: str | None = None

    def trace(self, run: _RunStep) -> _RunStep:
        """Return what runs a step, as ``run`` does, with a span around each."""
        if self._tracer is None:
            return run

        def run_traced(step: _Step, inputs: Any) -> Any:
            with self.span(step.name, str(step.kind)):
                return run(step, inputs)

        return cast(_RunStep, run_traced)

    def span(self, step: str, kind: str = "private") -> AbstractContextManager[None]:
        """Return the span of a step; its name must be public."""
        if self._tracer is None:
            return nullcontext()
        return _span(self._tracer, step, {"privsyn.step": step, "privsyn.kind": kind})


@contextmanager
def _span(tracer: Any, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
    """Open a span; an error in it leaves its type and no text, which may quote a row."""
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
    except Exception as error:  # whatever the receiver's program raises
        _logger.warning("A lineage event (%s) could not be delivered: %s.", state, type(error).__name__)


def _open_traces(endpoint: str) -> Callable[[], Any]:
    """Return what opens a tracer that sends its spans to ``endpoint`` until it is closed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise _make_missing("settings.traces", "OpenTelemetry", "traces") from None

    @contextmanager
    def open_tracer() -> Iterator[Any]:
        # a provider of its own: what other packages trace is not ours to send
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
    """Return what makes, for a job and what it reads, the function that sends its events to a web address or a file."""
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

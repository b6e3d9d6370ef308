"""Spans of steps, sent to a receiver of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Any

from privsyn.base.registry import need_package
from privsyn.base.telemetry import OpenSpan

FLUSH_MILLISECONDS = 5_000
"""How long the end of a run waits for spans that are not delivered yet."""


class Traces:
    """Traces that go to the receiver at ``endpoint``.  Raises RequestError where the package is not installed."""

    def __init__(self, endpoint: str) -> None:
        with need_package("opentelemetry-sdk", "a receiver of traces", "traces", "settings.traces"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        self._endpoint, self._exporter, self._processor = endpoint, OTLPSpanExporter, BatchSpanProcessor
        self._provider, self._resource = TracerProvider, Resource

    @contextmanager
    def open_trace(self) -> Iterator[OpenSpan]:
        """Yield what opens a span, until the trace is closed and sent."""
        # a provider of its own: what other packages trace is not ours to send
        provider = self._provider(
            resource=self._resource.create({"service.name": "privsyn", "service.version": version("privsyn-flows")}),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._processor(self._exporter(endpoint=self._endpoint, timeout=5)))
        tracer = provider.get_tracer("privsyn")

        def open_span(name: str, attributes: Mapping[str, str]) -> AbstractContextManager[None]:
            return _open_span(tracer, name, attributes)

        try:
            yield open_span
        finally:
            provider.force_flush(FLUSH_MILLISECONDS)
            provider.shutdown()


@contextmanager
def _open_span(tracer: Any, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
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

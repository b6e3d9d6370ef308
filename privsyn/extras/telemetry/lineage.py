"""Events of runs, sent to a receiver of OpenLineage or written to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privsyn.base.registry import need_package
from privsyn.base.telemetry import Job, Tell

NAMESPACE, RELEASED = "privsyn", "privsyn.released"
"""OpenLineage's namespaces of jobs and data sets, and of released folders."""


class Lineage:
    """Events that go to ``place``, a web address or a file.  Raises RequestError where the package is not installed."""

    def __init__(self, place: str) -> None:
        with need_package("openlineage-python", "a receiver of lineage", "lineage", "settings.lineage"):
            from openlineage.client import event_v2
            from openlineage.client.transport import file, http
            from openlineage.client.uuid import generate_new_uuid
        self._place, self._events, self._file, self._http = place, event_v2, file, http
        self._make_id = generate_new_uuid

    def begin(self, job: Job, dataset: str, released_before: Sequence[str]) -> Tell:
        """Return what tells of the states of one run of a job."""
        events, run = self._events, str(self._make_id())
        inputs = [
            events.InputDataset(namespace=NAMESPACE, name=dataset),
            *(events.InputDataset(namespace=RELEASED, name=name) for name in released_before),
        ]

        def tell(state: str, released: str | None) -> None:
            event = events.RunEvent(
                eventTime=datetime.now(UTC).isoformat(),
                eventType=events.RunState[state],
                run=events.Run(runId=run),
                job=events.Job(namespace=NAMESPACE, name=job),
                inputs=inputs,
                outputs=[events.OutputDataset(namespace=RELEASED, name=released)] if released else [],
                producer=f"urn:privsyn-flows:{version('privsyn-flows')}",
            )
            self._open_transport().emit(event)

        return tell

    def _open_transport(self) -> Any:
        if not self._place.startswith(("http://", "https://")):
            path = str(Path(self._place).absolute())
            return self._file.FileTransport(self._file.FileConfig(log_file_path=path, append=True))
        key = os.environ.get("OPENLINEAGE_API_KEY")
        login: dict[str, Any] = {"auth": self._http.ApiKeyTokenProvider({"apiKey": key})} if key else {}
        return self._http.HttpTransport(
            self._http.HttpConfig(url=self._place, timeout=5.0, retry={"total": 1}, **login)
        )

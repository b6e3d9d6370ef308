"""What Prefect keeps and says of the flow runs of a test, in this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.settings import get_current_settings


def read_database() -> bytes:
    """Every byte of the server's database and of what it has not yet written into it."""
    url = get_current_settings().server.database.connection_url
    assert url is not None
    file = Path(url.get_secret_value().split(":///")[1])
    return b"".join(p.read_bytes() for p in file.parent.glob(f"{file.name}*"))


def eventually(look: Callable[[], Any], enough: Callable[[Any], bool]) -> Any:
    """What ``look`` finds once it is enough: Prefect records task runs and logs a little later than they happen."""
    for _ in range(300):
        found = look()
        if enough(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"Prefect recorded only {found}")


def list_states(flow_run: UUID, count: int) -> dict[str, str]:
    """Name -> final state of the task runs of a flow run, which are at least so many."""
    mine = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))

    def look() -> dict[str, str]:
        runs = client.read_task_runs(flow_run_filter=mine)
        return {r.name: str(r.state_name) for r in runs if r.state is not None and r.state.is_final()}

    with get_client(sync_client=True) as client:
        return eventually(look, lambda found: len(found) >= count)


@contextmanager
def log(*, levels: bool = False, level: str = "INFO") -> Iterator[list[str]]:
    """Lines that flow and task runs log at ``level`` and above, as a person reads them; ``levels``: with theirs."""
    lines: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s" if levels else "%(message)s"))
    handler.emit = lambda record: lines.extend(handler.format(record).splitlines())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in ("prefect.flow_runs", "prefect.task_runs")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield lines
    finally:
        for logger, kept in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(kept)

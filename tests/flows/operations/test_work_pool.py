"""The work pool on a server: closed, also one that an earlier version made open, with the operator's limit kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

from privsyn.server.environment import POOL
from privsyn.server.work_pool import LIMIT, TEMPLATE, close_pool

CALLERS = {
    "command": "x",
    "env": {"PRIVSYN_LEDGER": "x"},
    "env.PRIVSYN_LEDGER": "x",
    "working_dir": "/tmp",  # noqa: S108 - nothing is written
    "name": "x",
}


@pytest.fixture(autouse=True)
def clean(prefect_server: str) -> Iterator[None]:
    yield
    with get_client(sync_client=True) as client:
        client.delete_work_pool(POOL)


def test_it_is_made_closed_and_twice_is_once() -> None:
    with get_client(sync_client=True) as client:
        close_pool(client)
        made = client.read_work_pool(POOL)
        close_pool(client)
        assert client.read_work_pool(POOL) == made
    assert (made.base_job_template, made.concurrency_limit, made.type) == (TEMPLATE, LIMIT, "process")
    # A worker takes nothing of what a run brings.
    with get_client(sync_client=True) as client:
        close_pool(client)
    assert configured(TEMPLATE) == ProcessJobConfiguration(stream_output=True)
    opened = configured(ProcessWorker.get_default_base_job_template())
    assert (opened.command, opened.env["PRIVSYN_LEDGER"]) == ("x", "x")  # Prefect's own takes it all


def test_an_open_one_is_closed_and_its_limit_stays() -> None:
    with get_client(sync_client=True) as client:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=template))
        client.update_work_pool(POOL, WorkPoolUpdate(concurrency_limit=1))
        close_pool(client)
        closed = client.read_work_pool(POOL)
    assert (closed.base_job_template, closed.concurrency_limit) == (TEMPLATE, 1)


def configured(template: dict[str, object]) -> ProcessJobConfiguration:
    """What a worker would run, of a run that brings every field, whatever the server checked."""
    made = ProcessJobConfiguration.from_template_and_values(base_job_template=template, values=dict(CALLERS))
    return asyncio.run(made)

"""`privsyn deploy` twice: what did not change is left alone and each deployment is said; the work pool is closed."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker
from ruamel.yaml import YAML

from privsyn.base.settings import Settings
from privsyn.server.deployments_file import write_starter_files
from privsyn.server.environment import POOL
from privsyn.server.registration import register
from privsyn.server.work_pool import LIMIT, TEMPLATE, close_pool

NAMES = ("release/gss-weekly", "scheduled-release/gss-monthly", "budget-report/all-data-sets", "release/any-table")


@pytest.fixture
def folder(prefect_server: str, places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_starter_files(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "site")
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    yield tmp_path / "site"
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)


def deploy() -> list[str]:
    said: list[str] = []
    register(Settings(), said.append)
    return said


def states(said: list[str]) -> dict[str, str]:
    """What a deploy says of each deployment, by name."""
    return {line.split()[0]: line.split("   ")[-1] for line in said if "/deployments/deployment/" in line}


def registered(name: str) -> DeploymentResponse:
    with get_client(sync_client=True) as client:
        return client.read_deployment_by_name(name)


def identities() -> dict[str, tuple[UUID, list[UUID], Any]]:
    found = {name: registered(name) for name in NAMES}
    return {name: (d.id, [s.id for s in d.schedules], d.updated) for name, d in found.items()}


def rewrite(folder: Path, name: str, **changes: Any) -> None:
    file, yaml = folder / "deployments" / "prefect.yaml", YAML()
    content = yaml.load(file)
    next(entry for entry in content["deployments"] if entry["name"] == name).update(changes)
    yaml.dump(content, file)


WEEKLY, MONTHLY = NAMES[:2]


def test_only_what_changed_is_changed_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registering takes seconds: one server sees the file as it is, and then with three kinds of changes."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("another program was started for a deployment, which loads everything anew")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert set(states(deploy()).values()) == {"new"}
    schema = registered("release/any-table").parameter_openapi_schema
    assert schema is not None and schema["additionalProperties"] is False  # the server refuses what no flow takes
    monthly = registered(MONTHLY)
    with get_client(sync_client=True) as client:
        client.update_deployment_schedule(monthly.id, monthly.schedules[0].id, active=True)

    before = identities()
    told = deploy()
    assert set(states(told).values()) == {"unchanged"}
    assert identities() == before  # not even touched
    (schedule,) = registered(MONTHLY).schedules
    assert schedule.active  # what people set stays
    line = f"schedule 0 4 1 * *: on; `prefect deployment schedule pause {MONTHLY} {schedule.id}`"
    assert line in " ".join(" ".join(told).split())

    rewrite(folder, "gss-weekly", description="Weekly.", concurrency_limit=None)
    both = [{"cron": "0 5 1 * *", "timezone": "UTC", "active": False}, {"interval": 3600, "timezone": "UTC"}]
    rewrite(folder, "gss-monthly", schedules=both)
    told = deploy()
    said = states(told)
    assert said.pop(WEEKLY) == "changed: description, concurrency_limit, concurrency_options"
    assert said.pop(MONTHLY) == "changed: schedules"
    assert set(said.values()) == {"unchanged"}
    assert "  its schedule 0 4 1 * * is not in deployments/prefect.yaml and was removed" in told
    assert len(registered(MONTHLY).schedules) == 2
    assert identities()[WEEKLY][:2] == before[WEEKLY][:2]
    weekly = registered(WEEKLY)
    assert weekly.description == "Weekly." and weekly.global_concurrency_limit is None

    spec = folder / "examples" / "gss.yaml"
    spec.write_text(spec.read_text().replace("epsilon: 1.0", "epsilon: 0.5"))
    said = states(deploy())
    assert {name for name, state in said.items() if state == "changed: parameters"} == {WEEKLY, MONTHLY}
    assert registered(WEEKLY).parameters["spec"]["privacy"]["epsilon"] == 0.5
    assert set(states(deploy()).values()) == {"unchanged"}


CALLERS = {
    "command": "x",
    "env": {"PRIVSYN_LEDGER": "x"},
    "env.PRIVSYN_LEDGER": "x",
    "working_dir": "/tmp",  # noqa: S108 - nothing is written
    "name": "x",
}


@pytest.fixture(autouse=True)
def no_pool(prefect_server: str) -> Iterator[None]:
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

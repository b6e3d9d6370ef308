"""`privsyn deploy` twice: what did not change is left alone, with its IDs, and each deployment is said as it goes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.responses import DeploymentResponse
from ruamel.yaml import YAML

from privsyn.base.settings import Settings
from privsyn.server.registration import register
from privsyn.server.starter_files import write_starter_files

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


def test_what_is_unchanged_keeps_its_ids_and_is_not_even_touched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("another program was started for a deployment, which loads everything anew")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert set(states(deploy()).values()) == {"new"}
    before = identities()
    assert set(states(deploy()).values()) == {"unchanged"}
    assert identities() == before


def test_only_what_changed_is_changed_and_said(folder: Path) -> None:
    deploy()
    before = identities()
    rewrite(folder, "gss-weekly", description="Weekly.", concurrency_limit=None)
    said = states(deploy())
    assert said.pop("release/gss-weekly") == "changed: description, concurrency_limit, concurrency_options"
    assert set(said.values()) == {"unchanged"}
    after, weekly = identities(), registered("release/gss-weekly")
    assert after["release/gss-weekly"][:2] == before["release/gss-weekly"][:2]
    assert weekly.description == "Weekly." and weekly.global_concurrency_limit is None
    assert set(states(deploy()).values()) == {"unchanged"}


def test_a_schedule_keeps_its_switch_and_one_that_is_not_in_the_file_goes(folder: Path) -> None:
    deploy()
    monthly = registered("scheduled-release/gss-monthly")
    with get_client(sync_client=True) as client:
        client.update_deployment_schedule(monthly.id, monthly.schedules[0].id, active=True)
    assert set(states(deploy()).values()) == {"unchanged"}
    assert [s.active for s in registered("scheduled-release/gss-monthly").schedules] == [True]
    both = [{"cron": "0 5 1 * *", "timezone": "UTC", "active": False}, {"interval": 3600, "timezone": "UTC"}]
    rewrite(folder, "gss-monthly", schedules=both)
    said = deploy()
    assert states(said)["scheduled-release/gss-monthly"] == "changed: schedules"
    assert "  its schedule 0 4 1 * * is not in deployments/prefect.yaml and was removed" in said
    assert len(registered("scheduled-release/gss-monthly").schedules) == 2
    assert set(states(deploy()).values()) == {"unchanged"}


def test_a_spec_that_changed_changes_the_parameters_of_its_deployments(folder: Path) -> None:
    deploy()
    spec = folder / "examples" / "gss.yaml"
    spec.write_text(spec.read_text().replace("epsilon: 1.0", "epsilon: 0.5"))
    said = states(deploy())
    assert {name for name, state in said.items() if state == "changed: parameters"} == {
        "release/gss-weekly",
        "scheduled-release/gss-monthly",
    }
    assert registered("release/gss-weekly").parameters["spec"]["privacy"]["epsilon"] == 0.5


def test_a_run_with_a_parameter_that_its_flow_does_not_take_is_refused_by_the_server(folder: Path) -> None:
    deploy()
    schema = registered("release/any-table").parameter_openapi_schema
    assert schema is not None and schema["additionalProperties"] is False

"""The deploy step: the work pool, every deployment of deployments/prefect.yaml, and the notifications.

Deployments and schedules that already match the file are left alone, with their IDs and runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from shutil import which
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.server.deployments_file import FILE, WrittenDeployment, construct_written_schedule, read_deployments
from privsyn.server.environment import API, Address, build_prefect_environment, open_client
from privsyn.server.login import CLIENT, locate_login_file
from privsyn.server.scheduled_releases import read_flow_name, read_pages
from privsyn.server.work_pool import close_pool

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import DeploymentSchedule
    from prefect.client.schemas.responses import DeploymentResponse


Log = Callable[[str], None]


def register(settings: Settings, log: Log, file: Path = FILE) -> None:
    """Register everything with the server at PREFECT_API_URL, which may still be starting.

    A schedule stays on or off as on the server; a new one follows the file.  The worker runs flows in the current
    folder.  Raises RequestError for a missing or wrong file, before anything is registered, and PrivsynError if no
    server answers or it refuses.  Sets os.environ, where Prefect reads its settings.
    """
    environment = build_prefect_environment(settings)
    address = Address.of(environment)
    prefect = Path(sys.executable).with_name("prefect")
    program = "prefect" if which("prefect") == str(prefect) else quote(str(prefect))
    login = None if environment.get(CLIENT) else locate_login_file(settings, environment)
    os.environ.update(environment)
    log(f"Checking {file}")
    written = read_deployments(file)  # loads Prefect, which reads the environment
    if not address.answers():
        log(f"Waiting for the server at {address.api}")
    address.wait()
    opened = open_client(settings, environment, address)
    from privsyn.server.alerts import describe, set_up

    with opened as client:
        close_pool(client)
        ours = [_register_one(client, one, file, address.page, log) for one in written]
        _list_others(client, {deployment.id for deployment in ours}, file, address.page, log)
    for line in describe(set_up(environment)):
        log(line)
    log(f"Start one on the page, or: {_format_start(program, written, address, login)}")


def _register_one(
    client: SyncPrefectClient, one: WrittenDeployment, file: Path, page: str, log: Log
) -> DeploymentResponse:
    """Make a deployment match the file, log the changes, and return it."""
    wanted = _build_fields(one)
    known, done = _find(client, one.full_name), []
    if known is None:
        flow = client.create_flow_from_name(one.flow.name)
        client.create_deployment(
            flow, one.name, work_pool_name=wanted["work_pool_name"], parameters=wanted["parameters"]
        )
        known, done = _find(client, one.full_name), ["new"]
    if known is None:
        raise PrivsynError(f"the server has not taken the deployment {one.full_name}", "Run this again")
    changed = _list_changes(known, wanted)
    if changed:
        _update(client, known, {field: wanted[field] for field in changed})
    lost, made = _set_schedules(client, known, one)
    if not done and (changed or lost or made):
        done = ["changed:", ", ".join([*changed, *(["schedules"] if lost or made else [])])]
    known = client.read_deployment(known.id) if changed or lost or made else known
    _show(one.full_name, known, page, " ".join(done) or "unchanged", log)
    for schedule in lost:
        log(f"  its schedule {schedule} is not in {file} and was removed")
    return known


def _find(client: SyncPrefectClient, full_name: str) -> DeploymentResponse | None:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(full_name)
    except ObjectNotFound:
        return None


def _show(name: str, deployment: DeploymentResponse, page: str, state: str, log: Log) -> None:
    log(f"{name:<40} {page}/deployments/deployment/{deployment.id}   {state}")
    for schedule in deployment.schedules:
        now, other = ("on", "pause") if schedule.active else ("off", "resume")
        when = getattr(schedule.schedule, "cron", schedule.schedule)
        log(f"  schedule {when}: {now}; `prefect deployment schedule {other} {name} {schedule.id}`")


def _list_others(client: SyncPrefectClient, deployed_ids: set[Any], file: Path, page: str, log: Log) -> None:
    others = [d for d in read_pages(client.read_deployments) if d.id not in deployed_ids]
    names = {d.id: f"{read_flow_name(client, d.flow_id)}/{d.name}" for d in others}
    for deployment in sorted(others, key=lambda d: names[d.id]):
        is_ours = str(deployment.entrypoint).startswith("privsyn.")
        _show(names[deployment.id], deployment, page, "" if is_ours else "another program's", log)
        if is_ours:
            log(f"  is not in {file} any more, and its schedules go on: delete it on its page if nobody needs it")


def _build_fields(one: WrittenDeployment) -> dict[str, Any]:
    """Run the entry's steps and return the deployment's fields as the server stores them, without schedules."""
    from prefect.utilities.templating import apply_values

    entry, outputs = asyncio.run(_run_steps(one))
    here = {"prefect.deployments.steps.set_working_directory": {"directory": str(Path.cwd().resolve())}}
    stated_pull = one.list_steps("pull")
    pull = [here] if stated_pull is None else stated_pull
    pool, limit = entry.get("work_pool") or {}, entry.get("concurrency_limit")
    options = {k: v for k, v in limit.items() if k != "limit"} if isinstance(limit, Mapping) else {}
    schema = one.flow.parameters.model_dump(exclude_unset=True)
    if one.entrypoint.startswith("privsyn."):
        schema["additionalProperties"] = False  # the server refuses a run with an unknown parameter
    stated = {field: entry[field] for field in ("paused",) if entry.get(field) is not None}
    if pool.get("work_queue_name"):
        stated["work_queue_name"] = pool["work_queue_name"]
    fields = {
        "version": entry.get("version") or one.flow.version,
        "description": entry.get("description") or one.flow.description,
        "tags": list(entry.get("tags") or ()),
        "parameters": entry.get("parameters") or {},
        "work_pool_name": pool.get("name"),
        "job_variables": pool.get("job_variables") or {},
        "entrypoint": one.entrypoint,
        "pull_steps": apply_values(pull, outputs, remove_notset=False),
        "concurrency_limit": limit.get("limit") if isinstance(limit, Mapping) else limit,
        "concurrency_options": options or None,
        "enforce_parameter_schema": entry.get("enforce_parameter_schema", True),
        "parameter_openapi_schema": schema,
        **stated,
    }
    return dict(to_jsonable_python(fields))


async def _run_steps(one: WrittenDeployment) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run an entry's steps and return the entry, filled in like by Prefect, and the steps' outputs."""
    from prefect.deployments.steps.core import StepExecutionError, run_steps
    from prefect.utilities.templating import apply_values, resolve_block_document_references, resolve_variables

    entry: Any = await resolve_variables(await resolve_block_document_references(dict(one.content)))
    entry = apply_values(entry, dict(os.environ), remove_notset=False)
    steps = one.list_steps("build", "push")
    try:
        outputs = await run_steps(steps, {}, print_function=lambda *_: None) if steps else {}
    except StepExecutionError as error:
        raise PrivsynError(f"a step of the deployment {one.full_name} failed: {error}", "Correct it") from error
    return apply_values(entry, outputs, skip_prefixes=["ctx."]), outputs


def _list_changes(known: DeploymentResponse, wanted: Mapping[str, Any]) -> list[str]:
    limit, options = known.global_concurrency_limit, known.concurrency_options
    kept: dict[str, Any] = {
        "concurrency_limit": None if limit is None else limit.limit,
        "concurrency_options": None if options is None else options.model_dump(exclude_none=True),
    }
    kept |= {field: getattr(known, field, None) for field in wanted if field not in kept}
    return [field for field, value in wanted.items() if to_jsonable_python(kept[field]) != value]


def _update(client: SyncPrefectClient, known: DeploymentResponse, changes: dict[str, Any]) -> None:
    from prefect.client.schemas.actions import DeploymentUpdate

    client.update_deployment(known.id, DeploymentUpdate(**changes))


def _set_schedules(
    client: SyncPrefectClient, known: DeploymentResponse, one: WrittenDeployment
) -> tuple[list[str], list[Any]]:
    """Create the missing schedules of the file and remove others; return removed and created schedules."""
    from prefect.client.schemas.actions import DeploymentScheduleCreate

    missing, others = [], list(known.schedules)
    for stated in one.content.get("schedules") or ():
        schedule, parameters = construct_written_schedule(stated), stated.get("parameters") or {}
        same = [o for o in others if _is_same(o, schedule, parameters, stated)]
        if same:
            others.remove(same[0])
        else:
            fields = {field: stated[field] for field in ("active", "slug") if stated.get(field) is not None}
            missing.append(DeploymentScheduleCreate(schedule=schedule, parameters=parameters, **fields))
    for other in others:
        client.delete_deployment_schedule(known.id, other.id)
    if missing:
        client.create_deployment_schedules(known.id, missing)
    return [str(getattr(other.schedule, "cron", other.schedule)) for other in others], missing


def _is_same(
    known: DeploymentSchedule, schedule: Any, parameters: Mapping[str, Any], stated: Mapping[str, Any]
) -> bool:
    """Return whether a server's schedule is the stated one; an interval without a stated anchor date matches any."""
    exclude = set() if stated.get("anchor_date") else {"anchor_date"}
    contents = [one.model_dump(mode="json", exclude=exclude) for one in (known.schedule, schedule)]
    return contents[0] == contents[1] and known.parameters == parameters and known.slug == stated.get("slug")


def _format_start(program: str, written: Sequence[WrittenDeployment], address: Address, login: Path | None) -> str:
    """Return a command that starts one deployment; ``login``: the login's file, if the shell lacks the login."""
    first = next((one for one in written if one.is_filled_in), written[0])
    words = [f"{API}={quote(address.api)}"]
    if login is not None and login.is_file():
        words.append(f'{CLIENT}="$(cat {quote(str(login))})"')
    words += [program, "deployment", "run", quote(first.full_name)]
    return " ".join(words if first.is_filled_in else [*words, "--params", '"$(privsyn spec json SPEC)"'])

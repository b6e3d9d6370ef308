"""The deploy step: the work pool, every deployment of deployments/prefect.yaml, and the notifications."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.server.environment import (
    API,
    Address,
    build_client_auth_env,
    build_prefect_command,
    build_prefect_environment,
)
from privsyn.server.work_pool import close_pool

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import DeploymentSchedule
    from prefect.client.schemas.responses import DeploymentResponse

Say = Callable[[str], None]

FILE = Path("deployments/prefect.yaml")


def register(settings: Settings, say: Say, file: Path = FILE) -> None:
    """Register everything with the server at PREFECT_API_URL, which may still be starting.

    A schedule keeps the switch that it has on the server; the file's counts where it is new.
    The worker runs flows in the folder in which this runs.  Raises RequestError for a file that is not there,
    PrivsynError when no server answers or it refuses.  Sets os.environ: Prefect reads its settings from there.
    """
    if not file.is_file():
        raise RequestError(f"there is no file {file} here", "Run this in the root of the repository", "deploy.file")
    environment = build_prefect_environment(settings)
    address = Address.of(environment)
    address.wait()
    environment |= build_client_auth_env(settings, environment, address)
    os.environ.update(environment)
    from prefect.client.orchestration import get_client  # here: it reads the environment when it is loaded

    from privsyn.server.notifications import describe, set_up

    with get_client(sync_client=True) as client:
        close_pool(client)
        before = {d.id: d.schedules for d in client.read_deployments()}
        _run_prefect(environment, "deploy", "--all", "--prefect-file", str(file))
        deployments = client.read_deployments()
        flows = {d.flow_id: client.read_flow(d.flow_id).name for d in deployments}
        for d in deployments:
            for lost in _keep_switches(client, d, before.get(d.id, [])):
                say(f"{flows[d.flow_id]}/{d.name}: its schedule {lost} is not in {file} and was removed")
        deployments = client.read_deployments()  # as switched
    page = address.page
    written = _list_written(file)
    for name, deployment in sorted((f"{flows[d.flow_id]}/{d.name}", d) for d in deployments):
        say(f"{name:<28} {page}/deployments/deployment/{deployment.id}")
        for schedule in deployment.schedules:
            say(_format_schedule(name, schedule))
        if (
            str(deployment.entrypoint).startswith("privsyn.")
            and (deployment.entrypoint, deployment.name) not in written
        ):
            say(f"  is not in {file} any more, and its schedules go on: delete it on its page if nobody needs it")
    for line in describe(set_up(environment)):
        say(line)
    say(f"Start one on the page, or: {API}={environment[API]} prefect deployment run release/gss-weekly")


def _list_written(file: Path) -> set[tuple[str, str]]:
    """Entry point and name of every deployment of the file."""
    content = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    return {(entry["entrypoint"], entry["name"]) for entry in content["deployments"]}


def _format_schedule(name: str, schedule: DeploymentSchedule) -> str:
    """Return what a schedule is, whether it is on, and the command that turns it over."""
    now, other = ("on", "pause") if schedule.active else ("off", "resume")
    when = getattr(schedule.schedule, "cron", schedule.schedule)
    return f"  schedule {when}: {now}; `prefect deployment schedule {other} {name} {schedule.id}`"


def _keep_switches(client: SyncPrefectClient, deployment: DeploymentResponse, before: Iterable[Any]) -> list[str]:
    """Switch its schedules as they were switched before, for Prefect takes the file's switch; those that are gone.

    Otherwise deploying anew would silently end a scheduled release that somebody had switched on on the page.
    """
    lost = []
    for old in before:
        same = [new for new in deployment.schedules if new.schedule == old.schedule]
        for new in same:
            if new.active != old.active:
                client.update_deployment_schedule(deployment.id, new.id, active=old.active)
        if not same:
            lost.append(str(getattr(old.schedule, "cron", old.schedule)))
    return lost


def _run_prefect(environment: dict[str, str], *arguments: str) -> None:
    done = subprocess.run(  # noqa: S603 - Prefect's own command line
        build_prefect_command(*arguments), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        raise PrivsynError(f"`prefect {arguments[0]}` failed with exit code {done.returncode}", "Its words are above")

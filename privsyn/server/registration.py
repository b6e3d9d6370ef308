"""The deploy step: the work pool, every deployment of deployments/prefect.yaml, and the notifications."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from shlex import quote
from shutil import which
from typing import TYPE_CHECKING, Any

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.server.deployments_file import WrittenDeployment, read_deployments
from privsyn.server.environment import (
    API,
    Address,
    build_client_auth_env,
    build_prefect_command,
    build_prefect_environment,
)
from privsyn.server.login import CLIENT, locate_login_file
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
    The worker runs flows in the folder in which this runs.  Raises RequestError for a file that is not there or that
    has something wrong, before anything is registered, PrivsynError when no server answers or it refuses.  Sets
    os.environ: Prefect reads its settings from there.
    """
    environment = build_prefect_environment(settings)
    address = Address.of(environment)
    program = _name_prefect()
    login = None if environment.get(CLIENT) else locate_login_file(settings, environment)
    os.environ.update(environment)
    written = read_deployments(file)  # which loads Prefect: it reads the environment then
    address.wait()
    environment |= build_client_auth_env(settings, environment, address)
    os.environ.update(environment)
    from prefect.client.orchestration import get_client
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()
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
            if str(d.entrypoint).startswith("privsyn."):
                _refuse_unknown_parameters(client, d)
        deployments = client.read_deployments()  # as switched
    page, entries = address.page, {(one.entrypoint, one.name) for one in written}
    for name, deployment in sorted((f"{flows[d.flow_id]}/{d.name}", d) for d in deployments):
        say(f"{name:<28} {page}/deployments/deployment/{deployment.id}")
        for schedule in deployment.schedules:
            say(_format_schedule(name, schedule))
        if (
            str(deployment.entrypoint).startswith("privsyn.")
            and (deployment.entrypoint, deployment.name) not in entries
        ):
            say(f"  is not in {file} any more, and its schedules go on: delete it on its page if nobody needs it")
    for line in describe(set_up(environment)):
        say(line)
    say(f"Start one on the page, or: {_format_start(program, written, address, login)}")


def _name_prefect() -> str:
    """Return what starts Prefect's command line from the shell that runs this."""
    beside = Path(sys.executable).with_name("prefect")
    return "prefect" if which("prefect") == str(beside) else quote(str(beside))


def _format_start(program: str, written: Sequence[WrittenDeployment], address: Address, login: Path | None) -> str:
    """Return a command that starts one deployment; ``login``: the file of the login that its shell does not have."""
    first = next((one for one in written if one.is_filled_in), written[0])
    words = [f"{API}={quote(address.api)}"]
    if login is not None and login.is_file():
        words.append(f'{CLIENT}="$(cat {quote(str(login))})"')
    words += [program, "deployment", "run", quote(first.full_name)]
    return " ".join(words if first.is_filled_in else [*words, "--params", '"$(privsyn spec json SPEC)"'])


def _refuse_unknown_parameters(client: SyncPrefectClient, deployment: DeploymentResponse) -> None:
    """Let the server refuse a run with a parameter that the flow does not take, which would only fail when it runs."""
    from prefect.client.schemas.actions import DeploymentUpdate

    schema = {**(deployment.parameter_openapi_schema or {}), "additionalProperties": False}
    client.update_deployment(deployment.id, DeploymentUpdate(parameter_openapi_schema=schema))


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
        said = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        last = said[-1] if said else "nothing"
        raise PrivsynError(f"`prefect {arguments[0]}` failed with exit code {done.returncode}; its last words: {last}")

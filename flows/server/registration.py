"""The deploy step: the work pool, every deployment of deployments/prefect.yaml, and the notifications."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.errors import PrivsynError, RequestError
from privsyn.flows.server.environment import API, POOL, Address, prefect_command, prefect_environment
from privsyn.settings import Settings

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
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
    environment = prefect_environment(settings)
    Address.of(environment).wait()
    os.environ.update(environment)
    from prefect.client.orchestration import get_client  # here: it reads the environment when it is loaded
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    from privsyn.flows.server.notifications import VARIABLE, set_up

    with get_client(sync_client=True) as client:
        template = ProcessWorker.get_default_base_job_template()
        with suppress(ObjectAlreadyExists):  # a worker makes it too
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=template))
        before = {d.id: d.schedules for d in client.read_deployments()}
        _prefect(environment, "deploy", "--all", "--prefect-file", str(file))
        deployments = client.read_deployments()
        flows = {d.flow_id: client.read_flow(d.flow_id).name for d in deployments}
        for d in deployments:
            for lost in _keep_switches(client, d, before.get(d.id, [])):
                say(f"{flows[d.flow_id]}/{d.name}: its schedule {lost} is not in {file} and was removed")
    page = Address.of(environment).page
    for name, deployment in sorted((f"{flows[d.flow_id]}/{d.name}", d) for d in deployments):
        say(f"{name:<22} {page}/deployments/deployment/{deployment.id}")
    for name, change in set_up(environment).items():
        say(f"Automation {name!r}: {change}")
    if not environment.get(VARIABLE):
        say(f"Nobody is notified yet: set {VARIABLE} (docs/operations.md) and run this again.")
    say(f"Start one on the page, or: {API}={environment[API]} prefect deployment run release/gss")


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


def _prefect(environment: dict[str, str], *arguments: str) -> None:
    done = subprocess.run(  # noqa: S603 - Prefect's own command line
        prefect_command(*arguments), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        raise PrivsynError(f"`prefect {arguments[0]}` failed with exit code {done.returncode}", "Its words are above")

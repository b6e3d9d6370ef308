"""A backfill by a server: find the deployment that releases a data set, and run it period by period."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.promise import Every
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.states import SCHEDULED_FLOW
from privsyn.server.environment import Address, build_prefect_environment, open_client
from privsyn.server.scheduled_releases import find_zone, read_deployed, read_flow_name

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

CHECK_SECONDS = 1.0
"""Seconds between two checks of a run."""

PATIENCE_SECONDS = 60.0
"""Seconds without a start after which the wait is reported."""


@dataclass
class ScheduledDeployment:
    """The deployment of a scheduled release, with its spec and calendar."""

    deployment: DeploymentResponse

    @property
    def spec(self) -> ReleaseSpec:
        """The spec that it releases."""
        return ReleaseSpec.model_validate(self.deployment.parameters["spec"])

    @property
    def calendar(self) -> str:
        """The time zone of its periods (default: UTC)."""
        return str(self.deployment.parameters.get("time_zone") or find_zone(self.deployment) or "UTC")


def connect(settings: Settings) -> SyncPrefectClient:
    """Return a client of the server at PREFECT_API_URL.  Raises PrivsynError if none answers.  Sets os.environ."""
    environment = build_prefect_environment(settings)
    address = Address.of(environment)
    address.wait(seconds=5.0)
    return open_client(settings, environment, address)


def find_deployment(client: SyncPrefectClient, dataset: str, every: Every) -> ScheduledDeployment:
    """Return the deployment that releases the data set once per ``every``.  Raises RequestError unless there is one."""
    deployed = [d for name, d in read_deployed(client) if name == dataset]
    scheduled = [d for d in deployed if read_flow_name(client, d.flow_id) == SCHEDULED_FLOW]
    found = [d for d in scheduled if d.parameters.get("every", "month") == every]
    if len(found) != 1:
        number = "no" if not found else f"{len(found)}"
        raise RequestError(
            f"the server has {number} deployments of {SCHEDULED_FLOW} for {dataset!r} once a {every}",
            "Name the file of its spec, which is released in this process, or deploy one",
            "backfill.dataset",
        )
    return ScheduledDeployment(found[0])


def release_period(client: SyncPrefectClient, one: ScheduledDeployment, period: str, say: Callable[[str], None]) -> str:
    """Start a run of the deployment for a period, wait for its end, and return the message of its state.

    Raises PrivsynError if it does not complete.
    """
    name = f"{one.spec.dataset} {period}"
    run_id = client.create_flow_run_from_deployment(one.deployment.id, parameters={"period": period}, name=name).id
    start, is_said = time.monotonic(), False
    while True:
        run = client.read_flow_run(run_id)
        state: Any = run.state
        if state.is_final():
            break
        if state.is_scheduled() and not is_said and time.monotonic() - start > PATIENCE_SECONDS:
            say(f"{name}: waiting for a worker, or for another run of this deployment to end")
            is_said = True
        time.sleep(CHECK_SECONDS)
    if not state.is_completed():
        raise PrivsynError(
            f"the run of {period} ended as {state.name}: {state.message}",
            "Run this again when that is mended: released periods are left out",
        )
    return str(state.message)

"""The data sets that a server knows before any of their runs has ended, from its deployments and the ledger.

Their series begin at 0, so that Prometheus sees the first failure as an increase.  Only names are read, no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

PAGE_SIZE = 200


def read_all_deployments(client: SyncPrefectClient) -> Iterator[DeploymentResponse]:
    """Yield every deployment of the server."""
    offset = 0
    while page := client.read_deployments(limit=PAGE_SIZE, offset=offset):
        yield from page
        offset += len(page)


def read_deployed(client: SyncPrefectClient) -> Iterator[tuple[str, DeploymentResponse]]:
    """Yield (data set, deployment) for every deployment with a spec."""
    for deployment in read_all_deployments(client):
        spec = (deployment.parameters or {}).get("spec")
        name = spec.get("dataset") if isinstance(spec, dict) else None
        if isinstance(name, str) and name:
            yield name, deployment


def read_names_in_ledger(settings: Settings) -> set[str]:
    """Return the ledger's data sets; empty if there is no ledger or it cannot be read, which runs report."""
    from privsyn.ledgers.ledger import Ledger

    try:
        return set(Ledger(settings.ledger, create=False).list_datasets())
    except PrivsynError:
        return set()

"""Says which run a release waits for, while another one holds its data set."""

from __future__ import annotations

import filelock
from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.context import FlowRunContext

from privsyn.base.settings import Settings
from privsyn.storage.safe_names import make_safe_name


def log_lock_holder(dataset: str, settings: Settings) -> None:
    """Log one line if another release of ``dataset`` is running now.  Outside a flow run, does nothing.

    It is a look, not a promise: the lock itself decides.  An error here fails nothing.
    """
    context = FlowRunContext.get()
    if context is None:
        return
    try:
        if _is_held(dataset, settings):
            get_run_logger().info("Waiting for %s, which holds %s.", _name_holder(dataset, context), dataset)
    except Exception as error:  # whatever it is: the release says itself what is wrong
        get_run_logger().warning("Who is waited for cannot be said (%s).", type(error).__name__)


def _is_held(dataset: str, settings: Settings) -> bool:
    """Return whether the data set's lock is held; taken and given back where it is not."""
    file = settings.private_root / "locks" / f"{make_safe_name(f'release-{dataset}')}.lock"
    if not file.exists():
        return False
    try:
        with filelock.FileLock(file, timeout=0):
            return False
    except filelock.Timeout:
        return True


def _name_holder(dataset: str, context: FlowRunContext) -> str:
    """Return the runs of this server that release the data set, but for this one."""
    own = context.flow_run.id if context.flow_run is not None else None
    running = FlowRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING"]}}})
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_run_filter=running)
    names = [f"the run {r.name}" for r in found if r.id != own and _get_dataset(r.parameters) == dataset]
    return " or ".join(names) or "a release that this server does not know"


def _get_dataset(parameters: dict[str, object]) -> object:
    spec = parameters.get("spec")
    return spec.get("dataset") if isinstance(spec, dict) else None

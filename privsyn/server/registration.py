"""The deploy step: the work pool, every deployment of deployments/prefect.yaml, and the notifications.

The file of deployments is read and checked whole before any of it is registered: flows, their parameters, specs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from shutil import which
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json, to_jsonable_python
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.base.wording import mention
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
    from prefect.flows import Flow


Log = Callable[[str], None]

FILE = Path("deployments/prefect.yaml")


def register(settings: Settings, log: Log, file: Path = FILE) -> None:
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
                log(f"{flows[d.flow_id]}/{d.name}: its schedule {lost} is not in {file} and was removed")
            if str(d.entrypoint).startswith("privsyn."):
                _refuse_unknown_parameters(client, d)
        deployments = client.read_deployments()  # as switched
    page, entries = address.page, {(one.entrypoint, one.name) for one in written}
    for name, deployment in sorted((f"{flows[d.flow_id]}/{d.name}", d) for d in deployments):
        log(f"{name:<28} {page}/deployments/deployment/{deployment.id}")
        for schedule in deployment.schedules:
            log(_format_schedule(name, schedule))
        if (
            str(deployment.entrypoint).startswith("privsyn.")
            and (deployment.entrypoint, deployment.name) not in entries
        ):
            log(f"  is not in {file} any more, and its schedules go on: delete it on its page if nobody needs it")
    for line in describe(set_up(environment)):
        log(line)
    log(f"Start one on the page, or: {_format_start(program, written, address, login)}")


def _name_prefect() -> str:
    """Return what starts Prefect's command line from the shell that runs this."""
    prefect = Path(sys.executable).with_name("prefect")
    return "prefect" if which("prefect") == str(prefect) else quote(str(prefect))


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
    """Return a line on a schedule: when it runs, whether it is on, and the command that changes that."""
    now, other = ("on", "pause") if schedule.active else ("off", "resume")
    when = getattr(schedule.schedule, "cron", schedule.schedule)
    return f"  schedule {when}: {now}; `prefect deployment schedule {other} {name} {schedule.id}`"


def _keep_switches(client: SyncPrefectClient, deployment: DeploymentResponse, before: Iterable[Any]) -> list[str]:
    """Restore the switches that a deployment's schedules had before; return the schedules that are gone.

    Prefect takes the file's switches: deploying anew would silently end a scheduled release that somebody had switched
    on on the page.
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
        output_lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        last = output_lines[-1] if output_lines else "nothing"
        raise PrivsynError(f"`prefect {arguments[0]}` failed with exit code {done.returncode}; its last words: {last}")


FIELD = "deploy.file"
_READ_SPEC = "privsyn.flows.deploy.read_spec"


@dataclass(frozen=True)
class WrittenDeployment:
    """One entry of the file: its flow's name and entry point, its own name, and whether its spec is filled in."""

    flow: str
    entrypoint: str
    name: str
    is_filled_in: bool

    @property
    def full_name(self) -> str:
        """The name by which Prefect starts it."""
        return f"{self.flow}/{self.name}"


def read_deployments(file: Path) -> list[WrittenDeployment]:
    """Return the entries of the file.

    Raises RequestError that names the entry for a flow that is not there, a parameter that its flow does not take, a
    value that its flow does not take, a schedule or limit
    that makes no sense and a spec that is wrong; for a file that cannot be read, too.
    """
    try:
        content = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RequestError(
            f"there is no file {file} here",
            "Run this in the folder that has it, or write one with `privsyn init FOLDER`",
            FIELD,
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} cannot be read ({type(error).__name__})", "Name a text file", FIELD) from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise RequestError(f"{file} is no YAML", "Correct it", FIELD, line) from None
    entries = content.get("deployments") if isinstance(content, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise RequestError(f"{file} has no list of deployments", "Write one under `deployments:`", FIELD)
    deployments = [_read_entry(entry, number, file) for number, entry in enumerate(entries, 1)]
    names = [(one.entrypoint, one.name) for one in deployments]
    for entrypoint, name in names:
        if names.count((entrypoint, name)) > 1:
            raise RequestError(f"{file} has two deployments {name!r} of one flow", "Rename one of them", FIELD)
    return deployments


def _read_entry(entry: Any, number: int, file: Path) -> WrittenDeployment:
    texts = [entry.get(key) for key in ("name", "entrypoint")] if isinstance(entry, Mapping) else [None]
    if not all(isinstance(text, str) and text for text in texts):
        raise RequestError(f"the deployment {number} of {file} lacks `name` or `entrypoint`", "Write both", FIELD)
    name, entrypoint = map(str, texts)
    parameters = entry.get("parameters") or {}
    try:
        flow = _check_flow(entrypoint, parameters)
        for arguments in _iterate_spec_steps(entry):
            _check_spec(arguments)
        for schedule in entry.get("schedules") or ():
            _check_schedule(schedule)
        _check_limit(entry.get("concurrency_limit"))
    except PrivsynError as error:
        line = f" (line {error.line})" if error.line else ""
        where = mention(error.field) + f"{line}: " if error.field else ""
        said = f"the deployment {name!r} of {file} will not do, and nothing was registered: "
        raise RequestError(said + where + error.problem, error.cure, FIELD) from None
    return WrittenDeployment(flow, entrypoint, name, "spec" in parameters)


def _check_flow(entrypoint: str, parameters: Any) -> str:
    """Return the name of the flow, which takes these parameters."""
    from prefect.flows import load_flow_from_entrypoint

    try:
        flow: Flow[..., Any] = load_flow_from_entrypoint(entrypoint)
    except Exception as error:
        raise RequestError(f"there is no flow {entrypoint} ({type(error).__name__})", "Correct `entrypoint`") from None
    if not isinstance(parameters, Mapping):
        raise RequestError("`parameters` is no mapping", "Write a name and a value a line")
    known = list(flow.parameters.properties)
    unknown = [str(name) for name in parameters if name not in known]
    if unknown:
        raise RequestError(f"its flow takes no parameter {unknown[0]!r}", f"It takes {', '.join(known)}")
    _check_values(parameters, flow.parameters.model_dump())
    return str(flow.name)


def _check_values(parameters: Mapping[str, Any], schema: dict[str, Any]) -> None:
    """Check the values by the flow's schema as Prefect stores them: dates as texts.

    Values in which something is filled in when Prefect deploys (``{{ ... }}``) or runs (``__prefect_kind``) are not
    checked.
    """
    from prefect.utilities.schema_tools import ValidationError, validate

    written = {name: value for name, value in parameters.items() if not _is_filled_in(value)}
    try:
        validate(to_jsonable_python(written), schema, raise_on_error=True, ignore_required=True)
    except ValidationError as error:
        raise RequestError(f"a value of `parameters` is wrong: {error}", "Correct it") from None


def _is_filled_in(value: Any) -> bool:
    """Return whether Prefect fills in a part of a value, however deep, when it deploys or runs."""
    text = to_json(value)
    return b"{{" in text or b"__prefect_kind" in text


def _iterate_spec_steps(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the arguments of the steps that read a spec."""
    for step in entry.get("build") or ():
        if isinstance(step, Mapping) and isinstance(step.get(_READ_SPEC), Mapping):
            yield step[_READ_SPEC]


def _check_spec(arguments: Mapping[str, Any]) -> None:
    from privsyn.flows.deploy import read_spec

    path = arguments.get("path")
    if not isinstance(path, str) or not path:
        raise RequestError("its step that reads a spec names no `path`", "Name the spec's file")
    read_spec(path)


def _check_schedule(schedule: Any) -> None:
    from prefect.client.schemas.schedules import construct_schedule
    from pydantic import ValidationError

    known = ("cron", "interval", "rrule", "timezone", "anchor_date")
    if not isinstance(schedule, Mapping):
        raise RequestError("one of its schedules is no mapping", "Write `cron:` and the like")
    stated = {key: schedule[key] for key in known if schedule.get(key) is not None}
    try:
        construct_schedule(**stated)
    except (ValueError, TypeError, ValidationError):
        raise RequestError("one of its schedules makes no sense", "Correct `cron`, `interval` or `timezone`") from None


def _check_limit(limit: Any) -> None:
    from prefect.client.schemas.objects import ConcurrencyLimitConfig
    from pydantic import ValidationError

    if _is_filled_in(limit):
        return
    try:
        count = ConcurrencyLimitConfig.model_validate(limit).limit if isinstance(limit, Mapping) else limit
    except ValidationError:
        count = 0
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        cure = "Write a whole number from 1 on, or `{limit: 1, collision_strategy: ENQUEUE}`"
        raise RequestError("its `concurrency_limit` makes no sense", cure)

"""The file of deployments: written to start from, and read and checked completely before anything is registered.

Files to start from come from the installed package, without a checkout: deployments, policy, scripts, units, example.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json, to_jsonable_python
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.wording import mention
from privsyn.storage.disk import translate_os_errors

if TYPE_CHECKING:
    from prefect.flows import Flow


FILE = Path("deployments/prefect.yaml")

FIELD = "deploy.file"
_READ_SPEC = "privsyn.flows.deploy.read_spec"


FIELDS = (
    *("name", "entrypoint", "description", "version", "tags", "parameters", "work_pool", "schedules", "paused"),
    *("concurrency_limit", "enforce_parameter_schema", "build", "push", "pull"),
)

FOLDER = "init.folder"
DEPLOYMENTS = (
    "prefect.yaml",
    "policy.yaml",
    "ledger_role.sql",
    "put_ledger_aside.sql",
    "prometheus_rules.yaml",
    "privsyn-server.service",
    "privsyn-worker.service",
)
_CHECKOUT = "/opt/privsyn"
_PLAIN = re.compile(r"[\w./+@-]+")


@dataclass(frozen=True)
class WrittenDeployment:
    """One entry of the file: flow, entry point and name, its content, and the file's steps for all entries."""

    flow: Flow[..., Any]
    entrypoint: str
    name: str
    content: Mapping[str, Any]
    steps: Mapping[str, Any]

    @property
    def full_name(self) -> str:
        """The deployment's name in Prefect."""
        return f"{self.flow.name}/{self.name}"

    @property
    def is_filled_in(self) -> bool:
        """Whether its parameters have a spec."""
        return "spec" in (self.content.get("parameters") or {})

    def list_steps(self, *names: str) -> list[Any] | None:
        """Return the steps with these names, from the entry or else from the file; None if neither has any."""
        stated = [self.content.get(name, self.steps.get(name)) for name in names]
        return None if all(steps is None for steps in stated) else [step for steps in stated for step in steps or ()]


def read_deployments(file: Path) -> list[WrittenDeployment]:
    """Return the entries of the file.

    Raises RequestError for an unreadable file.  Raises RequestError, with the entry's name, for a missing flow, or a
    parameter or value that the flow does not accept.  The same holds for a schedule, limit or spec that is not valid.
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
    steps = {name: content[name] for name in ("build", "push", "pull") if name in content}
    deployments = [_read_entry(entry, number, file, steps) for number, entry in enumerate(entries, 1)]
    names = [(one.entrypoint, one.name) for one in deployments]
    for entrypoint, name in names:
        if names.count((entrypoint, name)) > 1:
            raise RequestError(f"{file} has two deployments {name!r} of one flow", "Rename one of them", FIELD)
    return deployments


def _read_entry(entry: Any, number: int, file: Path, steps: Mapping[str, Any]) -> WrittenDeployment:
    texts = [entry.get(key) for key in ("name", "entrypoint")] if isinstance(entry, Mapping) else [None]
    if not all(isinstance(text, str) and text for text in texts):
        raise RequestError(f"the deployment {number} of {file} lacks `name` or `entrypoint`", "Write both", FIELD)
    name, entrypoint = map(str, texts)
    parameters = entry.get("parameters") or {}
    try:
        unknown = next((str(field) for field in entry if field not in FIELDS), None)
        if unknown is not None:
            raise RequestError(f"`{unknown}` is not registered by this command", f"It takes {', '.join(FIELDS)}")
        flow = _check_flow(entrypoint, parameters)
        _check_specs(entry)
        for schedule in entry.get("schedules") or ():
            _check_schedule(schedule)
        _check_limit(entry.get("concurrency_limit"))
    except PrivsynError as error:
        line = f" (line {error.line})" if error.line else ""
        where = mention(error.field) + f"{line}: " if error.field else ""
        said = f"the deployment {name!r} of {file} will not do, and nothing was registered: "
        raise RequestError(said + where + error.problem, error.cure, FIELD) from None
    return WrittenDeployment(flow, entrypoint, name, entry, steps)


def _check_flow(entrypoint: str, parameters: Any) -> Flow[..., Any]:
    """Return the flow.  Raises RequestError unless it accepts these parameters."""
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
    return flow


def _check_values(parameters: Mapping[str, Any], schema: dict[str, Any]) -> None:
    """Check the values, as Prefect stores them (dates as text), against the flow's schema.

    Values that Prefect fills in when it deploys (``{{ ... }}``) or runs (``__prefect_kind``) are not checked.
    """
    from prefect.utilities.schema_tools import ValidationError, validate

    written = {name: value for name, value in parameters.items() if not _is_filled_in(value)}
    try:
        validate(to_jsonable_python(written), schema, raise_on_error=True, ignore_required=True)
    except ValidationError as error:
        raise RequestError(f"a value of `parameters` is wrong: {error}", "Correct it") from None


def _is_filled_in(value: Any) -> bool:
    """Return whether Prefect fills in any part of a value when it deploys or runs."""
    text = to_json(value)
    return b"{{" in text or b"__prefect_kind" in text


def _check_specs(entry: Mapping[str, Any]) -> None:
    from privsyn.flows.deploy import read_spec

    for step in entry.get("build") or ():
        if isinstance(step, Mapping) and isinstance(step.get(_READ_SPEC), Mapping):
            path = step[_READ_SPEC].get("path")
            if not isinstance(path, str) or not path:
                raise RequestError("its step that reads a spec names no `path`", "Name the spec's file")
            read_spec(path)


def _check_schedule(schedule: Any) -> None:
    from pydantic import ValidationError

    if not isinstance(schedule, Mapping):
        raise RequestError("one of its schedules is no mapping", "Write `cron:` and the like")
    try:
        construct_written_schedule(schedule)
    except (ValueError, TypeError, ValidationError):
        raise RequestError("one of its schedules makes no sense", "Correct `cron`, `interval` or `timezone`") from None


def construct_written_schedule(stated: Mapping[str, Any]) -> Any:
    """Return Prefect's schedule of an entry.  Raises ValueError, TypeError or ValidationError if it is not valid."""
    from prefect.client.schemas.schedules import CronSchedule, construct_schedule

    known = ("cron", "interval", "rrule", "timezone", "anchor_date")
    schedule = construct_schedule(**{key: stated[key] for key in known if stated.get(key) is not None})
    if not isinstance(schedule, CronSchedule) or stated.get("day_or") is None:
        return schedule
    return CronSchedule(cron=schedule.cron, timezone=schedule.timezone, day_or=stated["day_or"])


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


def write_starter_files(folder: Path) -> list[Path]:
    """Write the deployments, policy, scripts and units, and the example of the deployments; return their paths.

    The layout in ``folder`` is the repository's.  The units start this program in ``folder``.  Raises RequestError,
    with nothing written, if one of the files exists or the folder cannot be written.
    """
    root = folder.absolute()
    texts = {f"deployments/{name}": _read_deployment(name, root).encode() for name in DEPLOYMENTS}
    example = files("privsyn") / "api" / "example_data"  # of `privsyn.example()`
    spec = (example / "gss.yaml").read_text(encoding="utf-8")
    placed = spec.replace("dataset: example\n", "dataset: example\ndata: gss.parquet\n", 1)
    texts["examples/gss.yaml"] = placed.encode()
    texts["examples/gss.parquet"] = (example / "gss.parquet").read_bytes()
    if root.exists() and not root.is_dir():
        raise RequestError(f"{root} is a file, not a folder", "Name another folder", FOLDER)
    for name in texts:
        if (root / name).exists():
            raise RequestError(f"{root / name} is there already; nothing was written", "Name another folder", FOLDER)
    with translate_os_errors(root):
        for name, content in texts.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return [root / name for name in texts]


def _read_deployment(name: str, root: Path) -> str:
    text = (files("privsyn") / "deployments" / name).read_text(encoding="utf-8")
    program = Path(sys.executable).with_name("privsyn")
    if not name.endswith(".service") or not all(_PLAIN.fullmatch(str(path)) for path in (root, program)):
        return text
    return text.replace(f"{_CHECKOUT}/.venv/bin/privsyn", str(program)).replace(_CHECKOUT, str(root))

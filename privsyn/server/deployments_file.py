"""The file of deployments, read and checked whole before any of it is registered: flows, their parameters, specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from privsyn.base.errors import PrivsynError, RequestError

if TYPE_CHECKING:
    from prefect.flows import Flow

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
    schedule that makes no sense and a spec that is wrong; for a file that cannot be read, too.
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
    found = [_read_entry(entry, number, file) for number, entry in enumerate(entries, 1)]
    names = [(one.entrypoint, one.name) for one in found]
    for entrypoint, name in names:
        if names.count((entrypoint, name)) > 1:
            raise RequestError(f"{file} has two deployments {name!r} of one flow", "Rename one of them", FIELD)
    return found


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
    except PrivsynError as error:
        raise RequestError(
            f"the deployment {name!r} of {file} will not do, and nothing was registered: {error}", "", FIELD
        ) from None
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
    return str(flow.name)


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
    given = {key: schedule[key] for key in known if schedule.get(key) is not None}
    try:
        construct_schedule(**given)
    except (ValueError, TypeError, ValidationError):
        raise RequestError("one of its schedules makes no sense", "Correct `cron`, `interval` or `timezone`") from None

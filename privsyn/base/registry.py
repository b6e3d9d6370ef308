"""The registry: parts that this package's extras and other packages add to the program by entry points.

A package declares a part in its ``pyproject.toml``, under ``[project.entry-points."privsyn.GROUP"]``: the part's name,
and the object that it is.  The module that asks for a group says what its objects have to be:

| group | name: object | asked by |
|---|---|---|
| privsyn.codebooks | ending of files (``.xml``): reads a Dictionary | specs/dictionaries.py |
| privsyn.commands | of the command: a function with its arguments | cli/__init__.py |
| privsyn.connectors | scheme of URLs, or ending of files: a Connector | sources/stream_source.py |
| privsyn.engines | ``kind`` of ``engine``: the class of a ClusterEngine | engine/proposal.py |
| privsyn.methods | any: a sequence of methods | evaluation/comparison/compare_methods.py |
| privsyn.metrics | of the metric: an AddedMetric | evaluation/scores.py |
| privsyn.requests | kind of a release that is of no table, its last step: lists its steps | api/ledger_comparison.py |
| privsyn.stores | scheme of URLs: a FileStore | storage/stores.py |
| privsyn.telemetry | of the setting with its address: the class of a receiver | base/telemetry.py |

An installed package is trusted: its parts run in this process.  A part is loaded when it is asked for, not before.
Parts add and never replace: the program's own endings, schemes, methods and parts win over a package's.  A kind of
request of another package has a hyphen in its name, which no step of a table's release has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from privsyn.base.errors import RequestError
from privsyn.base.wording import Text

Group = Literal[
    "codebooks", "commands", "connectors", "engines", "methods", "metrics", "requests", "stores", "telemetry"
]


LOG = logging.getLogger(__name__)


@cache
def find_parts(group: Group) -> dict[str, EntryPoint]:
    """Return name -> entry point of the installed parts, in the order of their names.

    If two have one name, this project's own part counts.  Raises RequestError if this project's own parts are missing,
    as after an update of the code without an installation.
    """
    if not any(map(_is_own, entry_points(group="privsyn.requests"))):
        raise RequestError(
            "the installation of privsyn-flows is older than its code",
            "Install it once more with pip, as after the checkout (docs/install.md)",
        )
    found = sorted(entry_points(group=f"privsyn.{group}"))
    parts = [part for part in found if _is_own(part) or group != "requests" or "-" in part.name]
    return {part.name: part for part in sorted(parts, key=_is_own)}


def _is_own(entry_point: EntryPoint) -> bool:
    return entry_point.value.startswith("privsyn.")


def load_part(group: Group, name: str, field: str = "") -> Any:
    """Return a part.  Raises RequestError about ``field`` where no installed package adds it, or it cannot load."""
    part = find_parts(group).get(name)
    if part is None:
        problem = f"no installed package adds {name!r} (privsyn.{group})"
        raise RequestError(problem, "Install the package that does, or leave it out", field)
    try:
        return part.load()
    except Exception as error:  # another author's code
        problem = f"{part.value}, which a package adds as {name!r}, cannot be loaded ({type(error).__name__})"
        raise RequestError(problem, "Repair or remove the package", field) from error


def load_parts(group: Group) -> dict[str, Any]:
    """Return name -> part of all installed parts that load; others are logged and left out."""
    parts = {}
    for name in find_parts(group):
        try:
            parts[name] = load_part(group, name)
        except RequestError as error:
            LOG.warning("%s", error)
    return parts


@contextmanager
def need_package(package: str, purpose: Text, extra: str, field: str = "data") -> Iterator[None]:
    """Raise RequestError about ``field``, with the extra to install, where the block's import fails."""
    try:
        yield
    except ImportError:
        raise make_missing_error(package, purpose, extra, field) from None


def make_missing_error(package: str, purpose: Text, extra: str, field: str) -> RequestError:
    """Return the error for a feature whose package is not installed."""
    return RequestError(
        (purpose + " needs" if purpose else "needs") + f" the package {package}, which is not installed",
        f"Install it with: pip install 'privsyn-flows[{extra}]'",
        field,
    )

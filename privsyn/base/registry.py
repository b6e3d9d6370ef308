"""The registry: parts that this package's extras and other packages add to the program by entry points.

A package declares a part in its ``pyproject.toml``, under ``[project.entry-points."privsyn.GROUP"]``: the part's name,
and the object that it is.  The module that asks for a group says what its objects have to be:

| group | name | asked by |
|---|---|---|
| privsyn.commands | of the command | privsyn/cli/__init__.py |
| privsyn.methods | any; a sequence of methods | privsyn/comparison/methods.py |
| privsyn.requests | of the last step of a release that is of no table | privsyn/api/ledger_comparison.py |

An installed package is trusted: a part runs in this process.  A part is loaded when it is asked for, and not before.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

Group = Literal["commands", "methods", "requests"]


@cache
def find_parts(group: Group) -> dict[str, EntryPoint]:
    """Return name -> entry point of the parts that are installed, in the order of their names."""
    return {part.name: part for part in sorted(entry_points(group=f"privsyn.{group}"))}


def load_part(group: Group, name: str) -> Any:
    """Return the part.  Raises KeyError where no package adds it."""
    return find_parts(group)[name].load()


def load_parts(group: Group) -> dict[str, Any]:
    """Return name -> part of all that are installed."""
    return {name: part.load() for name, part in find_parts(group).items()}

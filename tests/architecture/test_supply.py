"""What is installed is pinned: every dependency of every extra, and theirs, has its version in constraints.txt."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").split("\n")
PINS = dict(re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line).groups() for line in LINES if line)  # type: ignore[union-attr]
DIRECT = [
    Requirement(text)
    for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for text in group
]


def needed() -> set[str]:
    """Names of everything that the requirements need here, directly or through others."""
    waiting, found = [(r.name, frozenset(r.extras)) for r in DIRECT], set[tuple[str, frozenset[str]]]()
    while waiting:
        name, extras = waiting.pop()
        name = canonicalize_name(name)
        if (name, extras) in found:
            continue
        found.add((name, extras))
        try:
            texts = requires(name) or []
        except PackageNotFoundError:
            continue  # an extra that is not installed here; its name must be pinned all the same
        for requirement in map(Requirement, texts):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return {name for name, _ in found}


def test_every_dependency_is_pinned() -> None:
    pinned = {canonicalize_name(name) for name in PINS}
    assert len(needed()) > 100
    assert needed() - pinned == set()


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda r: r.name)
def test_the_pinned_version_is_one_that_the_project_allows(requirement: Requirement) -> None:
    version = {canonicalize_name(name): pin for name, pin in PINS.items()}[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(Version(version))


def test_nothing_is_pinned_twice() -> None:
    names = [canonicalize_name(line.split("==")[0]) for line in LINES if line]
    assert len(names) == len(set(names))

"""Every dependency of every extra, and theirs, has its version in constraints.txt, on every supported Python."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").split("\n")
PINS = dict(re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line).groups() for line in LINES if line)  # type: ignore[union-attr]
DIRECT = [
    Requirement(text)
    for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for text in group
]


MINORS = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: Python :: 3\.\d+$", c)]
PYTHONS = [f"{minor}.{patch}" for minor in MINORS for patch in (0, 99)]
"""The first patch version of every Python that the project names, and a late one."""


def needed(python: str) -> set[str]:
    """Names of everything that the requirements need on this system with that Python, directly or through others."""
    here = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
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
            if marker is None or any(marker.evaluate({**here, "extra": extra}) for extra in (*extras, "")):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return {name for name, _ in found}


def test_the_named_pythons_begin_with_the_one_required() -> None:
    assert PROJECT["requires-python"] == f">={MINORS[0]}"
    assert len(MINORS) >= 3


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_pinned(python: str) -> None:
    pinned = {canonicalize_name(name) for name in PINS}
    assert len(needed(python)) > 100
    assert needed(python) - pinned == set()


def test_a_dependency_of_an_early_patch_version_is_seen() -> None:
    """redis needs it before 3.11.3, as on Debian 12."""
    assert "async-timeout" in needed("3.11.2")
    assert "async-timeout" not in needed("3.11.3")


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda r: r.name)
def test_the_pinned_version_is_one_that_the_project_allows(requirement: Requirement) -> None:
    version = {canonicalize_name(name): pin for name, pin in PINS.items()}[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(Version(version))


def test_nothing_is_pinned_twice() -> None:
    names = [canonicalize_name(line.split("==")[0]) for line in LINES if line]
    assert len(names) == len(set(names))

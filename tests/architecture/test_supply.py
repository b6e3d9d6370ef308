"""Every dependency of every extra, and theirs, has its version and hashes in a lock, on every supported Python."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.examples import keep_first
from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@dataclass(frozen=True)
class Pin:
    """One line of a lock: a version, where it holds, and how many hashes it has."""

    name: str
    version: str
    marker: Marker | None
    hashes: int

    def holds(self, environment: dict[str, str]) -> bool:
        return self.marker is None or self.marker.evaluate(environment)


def pins_of(lock: str) -> list[Pin]:
    found = []
    for text in (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        requirement, *hashes = text.split(" --hash=sha256:")
        parsed = Requirement(requirement)
        assert all(re.fullmatch(r"[0-9a-f]{64}\s*", each) for each in hashes)
        version = str(parsed.specifier).removeprefix("==")
        found.append(Pin(canonicalize_name(parsed.name), version, parsed.marker, len(hashes)))
    return found


UNLOCKED = {"pgm"}
"""Brings jax, which nothing else here needs; its tests are skipped where it is not installed."""
LOCKS = {
    "requirements.lock": ("example", "postgres", "databases", "evaluation"),
    "requirements-dev.lock": tuple(e for e in PROJECT["optional-dependencies"] if e not in UNLOCKED),
}
"""Lock -> the extras that it holds."""


def direct(extras: Sequence[str]) -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    texts = [text for group in (PROJECT["dependencies"], *(optional[e] for e in extras)) for text in group]
    return [r for r in map(Requirement, texts) if r.name != PROJECT["name"]]  # `all` names extras that are there


MINORS = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: Python :: 3\.\d+$", c)]
PYTHONS = [f"{minor}.{patch}" for minor in MINORS for patch in (0, 99)]
"""The first patch version of every Python that the project names, and a late one."""


def environment(python: str) -> dict[str, str]:
    return {"python_full_version": python, "python_version": python.rpartition(".")[0]}


def needed(python: str, extras: Sequence[str] = ()) -> set[str]:
    """Names of everything that the requirements need on this system with that Python, directly or through others."""
    here = environment(python)
    waiting, found = [(r.name, frozenset(r.extras)) for r in direct(extras)], set[tuple[str, frozenset[str]]]()
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


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("python", keep_first([PYTHONS[0], PYTHONS[-1], *PYTHONS[1:-1]], 2))
def test_every_dependency_is_pinned_once(python: str, lock: str) -> None:
    names = [pin.name for pin in pins_of(lock) if pin.holds(environment(python))]
    assert len(names) == len(set(names))
    required = needed(python, LOCKS[lock])
    assert len(required) > 60
    assert required - set(names) == set()
    assert "setuptools" in names  # which builds the package itself


def test_a_dependency_of_an_early_patch_version_is_seen() -> None:
    """redis needs it before 3.11.3, as on Debian 12."""
    assert "async-timeout" in needed("3.11.2")
    assert "async-timeout" not in needed("3.11.3")


@pytest.mark.parametrize("lock", LOCKS)
def test_the_pinned_version_is_one_that_the_project_allows(lock: str) -> None:
    versions = {pin.name: pin.version for pin in pins_of(lock)}
    for requirement in direct(LOCKS[lock]):
        assert requirement.specifier.contains(Version(versions[canonicalize_name(requirement.name)])), requirement


def test_every_pin_has_its_hashes_and_names_no_registry() -> None:
    for lock in (*LOCKS, "requirements-uv.lock"):
        assert all(pin.hashes for pin in pins_of(lock))
        assert "://" not in (ROOT / lock).read_text(encoding="utf-8")
    small, whole = ({(pin.name, pin.version) for pin in pins_of(lock)} for lock in LOCKS)
    assert small < whole


@pytest.mark.slow
def test_the_bill_of_materials_names_every_locked_package(tmp_path: Path) -> None:
    """`make sbom`: each pin of requirements.lock with its version and hashes, the same bytes each time."""
    pytest.importorskip("cyclonedx_py", reason="no cyclonedx-bom: install privsyn-flows[dev]")
    (options,) = re.findall(r"^SBOM := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        command = [sys.executable, "-m", "cyclonedx_py", *options.split(), "-o", str(file), "requirements.lock"]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert files[0].read_bytes() == files[1].read_bytes()
    bill = json.loads(files[0].read_text())
    assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == PROJECT["name"]
    found = {
        (canonicalize_name(c["name"]), c["version"], sum(len(r.get("hashes", ())) for r in c["externalReferences"]))
        for c in bill["components"]
    }
    assert found == {(pin.name, pin.version, pin.hashes) for pin in pins_of("requirements.lock")}


def test_the_extra_of_everything_names_every_extra_that_users_run() -> None:
    optional = PROJECT["optional-dependencies"]
    (everything,) = map(Requirement, optional["all"])
    assert everything.name == PROJECT["name"]
    assert everything.extras == set(optional) - {"all", "example", "pgm", "formats-check", "docs", "dev"}

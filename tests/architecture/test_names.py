"""Names of modules: each is taken once in the whole package, so that it says by itself which module is meant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.support.places import ROOT

FOLDERS = ("data_contracts", "tasks", "privsyn", "flows")
NAMELESS = {"__init__", "__main__"}


def repeated(modules: Iterable[Path]) -> dict[str, list[str]]:
    """Module name -> its files, where there is more than one."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(modules):
        if path.stem not in NAMELESS:
            files[path.stem].append(str(path))
    return {name: paths for name, paths in files.items() if len(paths) > 1}


def modules() -> list[Path]:
    """Every module of the package, once, although privsyn/ also holds links to the other folders."""
    return [path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


def test_no_module_name_is_taken_twice():
    found = modules()
    assert {path.parts[0] for path in found} == set(FOLDERS)
    assert repeated(set(found)) == {}


def test_a_name_that_is_taken_twice_is_found():
    twice = [Path("tasks/words.py"), Path("flows/cli/words.py"), Path("tasks/__init__.py"), Path("flows/__init__.py")]
    assert repeated(twice) == {"words": ["flows/cli/words.py", "tasks/words.py"]}

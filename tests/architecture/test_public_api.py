"""The public names of `privsyn`: documented, typed, loaded when they are used, and none of them a module's name."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import privsyn
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "api.md"
FUNCTIONS = [name for name in privsyn.__all__ if inspect.isfunction(getattr(privsyn, name))]
CLASSES = [name for name in privsyn.__all__ if inspect.isclass(getattr(privsyn, name))]
ERRORS = [name for name in CLASSES if issubclass(getattr(privsyn, name), Exception)]

HEAVY = ("prefect", "great_expectations", "sklearn", "altair", "fastapi", "uvicorn", "dask", "IPython")
"""What a release in the caller's process must not load where it is not needed."""

LATER = ("networkx", "scipy", "numba")
"""What some steps load when they run: a release that is found again, and a look at the ledger, load none of them."""


def test_every_public_name_is_a_function_or_a_class() -> None:
    assert sorted({*FUNCTIONS, *CLASSES}) == privsyn.__all__ == sorted(set(privsyn.__all__))
    assert set(privsyn.__all__) <= set(dir(privsyn))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = privsyn.no_such_name


def test_no_public_name_is_that_of_a_module() -> None:
    """Importing `privsyn.release` would put a module in the place of the function."""
    assert find_spec("privsyn.api.release") is not None
    assert [name for name in privsyn.__all__ if find_spec(f"privsyn.{name}") is not None] == []


def test_the_names_for_type_checkers_are_the_names() -> None:
    source = (ROOT / "privsyn" / "__init__.py").read_text(encoding="utf-8")
    shown = re.findall(r"^    from (\S+) import (\w+) as \2$", source, re.MULTILINE)
    places = {name: getattr(privsyn, name).__module__ for name in privsyn.__all__}
    assert {name: module for module, name in shown} == places


def test_functions_document_their_arguments_errors_and_privacy() -> None:
    assert {name: found for name in FUNCTIONS if (found := undocumented(getattr(privsyn, name)))} == {}


def undocumented(function: Any) -> list[str]:
    """What a public function's docstring leaves out."""
    text = inspect.getdoc(function) or ""
    arguments = text.partition("Args:")[2].partition("Returns:")[0]
    missing = [p for p in inspect.signature(function).parameters if not re.search(rf"^ +{p}: \S", arguments, re.M)]
    return missing + [part for part in ("Returns:", "Raises:", "Privacy:") if part not in text]


def test_what_a_docstring_leaves_out_is_found() -> None:
    def function(a: int, b: int) -> None:
        """Do it.

        Args:
            a: A number.

        Returns:
            Nothing.
        """

    assert undocumented(function) == ["b", "Raises:", "Privacy:"]


def test_classes_document_what_is_private() -> None:
    for name in sorted({*CLASSES} - {*ERRORS, "ReleaseSpec"}):
        assert "Privacy:" in (inspect.getdoc(getattr(privsyn, name)) or ""), name


def loaded_after(program: str, folder: Path, packages: tuple[str, ...] = HEAVY) -> set[str]:
    """Which of these packages a program of its own has loaded at its end."""
    program = f"import sys\n{program}\nprint([m for m in {packages!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"'(\w+)'", done.stdout.splitlines()[-1]))


def test_the_package_loads_nothing_at_all(tmp_path: Path) -> None:
    program = "import privsyn; others = [m for m in sys.modules if m.startswith('privsyn.')]; assert not others, others"
    assert loaded_after(program, tmp_path) == set()


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """What makes the command answer at once: its modules alone load neither settings, tables nor Prefect."""
    heavy = (*HEAVY, *LATER, "numpy", "pyarrow", "pandas", "pydantic", "sqlalchemy")
    assert loaded_after("import privsyn.cli", tmp_path, heavy) == set()


def test_a_server_that_starts_anew_loads_nothing_that_makes_a_release(tmp_path: Path) -> None:
    """Nobody is told of a failure meanwhile."""
    parts = tuple(f"privsyn.{name}" for name in ("publish", "engine", "pipelines", "tasks", "ledgers"))
    assert loaded_after("import privsyn.server.alert_service, privsyn.server.request_guard", tmp_path, parts) == set()


def test_the_functions_load_nothing_heavy(tmp_path: Path) -> None:
    """Not when they are named, and not by what a release loads when it is called."""
    called = "import privsyn.pipelines.registry, privsyn.publish.folder, privsyn.engine.open_run, privsyn.engine.step"
    named = "import privsyn; privsyn.release, privsyn.open_release, privsyn.draft_spec, privsyn.ledger"
    assert loaded_after(f"{named}; {called}", tmp_path, (*HEAVY, *LATER)) == set()
    assert loaded_after("sys.modules['great_expectations'] = sys", tmp_path) == {"great_expectations"}


def test_the_page_has_every_public_name_and_no_other() -> None:
    """mkdocstrings writes the page from the docstrings of the names that stand after `:::`."""
    text = PAGE.read_text(encoding="utf-8")
    titles = re.findall(r"^::: privsyn\.(\w+)$", text, re.MULTILINE)
    assert sorted(titles) == privsyn.__all__
    assert set(re.findall(r"`privsyn\.(\w+)`", text)) <= {*privsyn.__all__}

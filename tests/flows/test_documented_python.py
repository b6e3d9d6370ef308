"""The Python of README.md and docs/python.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import privsyn
from tests.support.documented import python_of


def run(page: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(python_of(page), page, "exec"), names)  # noqa: S102 - the page's own
    return names


def test_the_python_page_runs(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(places)
    names = run("docs/python.md", {})
    assert names["release"].table.column_names == ["age", "smokes"]
    assert {"unit", "budget"} <= set(re.findall(r"'(\w+)'", capsys.readouterr().out))
    assert any(value is not None for value in names["scores"].values())


def test_the_readme_runs_in_an_empty_folder(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(places.iterdir()) == []
    monkeypatch.chdir(places)
    names = run("README.md", {})
    assert isinstance(names["release"], privsyn.Release)
    assert names["release"].table.column_names == list(names["table"].columns)
    assert "std_error" in capsys.readouterr().out

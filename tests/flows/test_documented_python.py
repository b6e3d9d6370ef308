"""The Python of README.md and docs/api.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import privsyn
from tests.support.places import ROOT
from tests.support.specs import PEOPLE_YAML, people


def python_of(page: str) -> str:
    """The page's Python blocks, one after the other, on the lines where they stand."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text.splitlines()
    inside, kept = False, []
    for line in lines:
        inside = line == "```python" or (inside and line != "```")
        kept.append(line if inside and line != "```python" else "")
    return "\n".join(kept)


def run(page: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(python_of(page), page, "exec"), names)  # noqa: S102 - the page's own
    return names


def test_the_api_page_runs(places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(places)
    names = run("docs/api.md", {})
    assert names["release"].table.column_names == ["age", "smokes"]
    assert {"unit", "budget"} <= set(re.findall(r"'(\w+)'", capsys.readouterr().out))
    assert any(value is not None for value in names["scores"].values())


def test_the_readme_runs(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places)
    table = people(300)
    pq.write_table(table, places / "people.parquet")
    (places / "people.yaml").write_text(PEOPLE_YAML, encoding="utf-8")
    names = run("README.md", {"df": table.to_pandas()})
    assert isinstance(names["release"], privsyn.Release)


def test_a_page_s_python_is_found() -> None:
    assert "privsyn.release(" in python_of("README.md") and "privsyn.draft_spec(" in python_of("docs/api.md")
    assert "```" not in python_of("docs/api.md") and "##" not in python_of("docs/api.md")

"""The example notebooks and the Python of README.md and docs/python.md run as they stand, and show what they say."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import privsyn
from tests.support.documented import python_of
from tests.support.places import ROOT

nbclient = pytest.importorskip("nbclient", reason="no notebook client: install privsyn-flows[dev]")
nbformat = pytest.importorskip("nbformat", reason="no notebook format: install privsyn-flows[dev]")
pytest.importorskip("ipykernel", reason="no notebook kernel: install privsyn-flows[dev]")

NOTEBOOKS = ("release", "receiver")


def notebook(name: str) -> Any:
    return nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)


def shown(cell: Any) -> str:
    """Everything that a cell printed or displayed."""
    texts = [o.get("text", "") + "".join(map(str, o.get("data", {}).values())) for o in cell["outputs"]]
    return "\n".join(texts)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_committed_notebook_has_no_outputs(name: str) -> None:
    cells = [cell for cell in notebook(name).cells if cell.cell_type == "code"]
    assert len(cells) > 10
    assert [cell.source for cell in cells if cell.outputs or cell.execution_count is not None] == []


def run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What each cell of the notebook shows, by its source; it leaves nothing in its working folder."""
    for variable, value in (("IPYTHONDIR", "ipython"), ("JUPYTER_RUNTIME_DIR", "runtime"), ("TMPDIR", "temporary")):
        (tmp_path / value).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / value))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    (working := tmp_path / "working").mkdir()
    book = notebook(name)
    where = {"metadata": {"path": working}}
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources=where).execute()
    assert list(working.iterdir()) == []
    return {cell.source: shown(cell) for cell in book.cells if cell.cell_type == "code"}


@pytest.mark.slow
def test_the_receivers_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = run("receiver", tmp_path, monkeypatch)

    def of(beginning: str) -> str:
        return next(text for source, text in outputs.items() if beginning in source)

    assert "std_error" in of("counted = release.count") and "vega" in of("mark_bar")
    assert "not about the population" in of("asked.attrs")
    assert "(Intercept)" in of("release.regress") and "simulated" in of("release.regress")
    assert "north" in of('release.share("retired"') and "std_error" in of("population=asked")
    assert "no column 'height'" in of("height")


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = run("release", tmp_path, monkeypatch)

    def of(beginning: str) -> str:
        return next(text for source, text in outputs.items() if beginning in source)

    assert "<mark>TODO</mark>" in of("spec = privsyn.draft_spec")
    release = of("release = privsyn.release(people")
    assert "<progress" in release and "differential privacy" in release and "<td>" in release
    assert of("again = privsyn.release").count("<progress") == 1  # the bar, at its end
    assert "PRIVATE" in of("report = privsyn.evaluate")
    assert "vega" in of("mark_bar")
    assert "of the data set" not in of("privsyn.ledger()") and "<td>people</td>" in of("privsyn.ledger()")
    assert "nothing was spent" in of("epsilon=8.0")
    assert "agrees" in of("privsyn.rerun")


def run_page(page: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(python_of(page), page, "exec"), names)  # noqa: S102 - the page's own
    return names


def test_the_python_page_runs(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(places)
    names = run_page("docs/python.md", {})
    assert names["release"].table.column_names == ["age", "smokes"]
    assert {"unit", "budget"} <= set(re.findall(r"'(\w+)'", capsys.readouterr().out))
    assert any(value is not None for value in names["scores"].values())


def test_the_readme_runs_in_an_empty_folder(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(places.iterdir()) == []
    monkeypatch.chdir(places)
    names = run_page("README.md", {})
    assert isinstance(names["release"], privsyn.Release)
    assert names["release"].table.column_names == list(names["table"].columns)
    assert "std_error" in capsys.readouterr().out

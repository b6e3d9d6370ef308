"""The generated parts of docs/results/papers.md: what stands between markers is replaced, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import paper_figures, references
from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from tests.unit.comparison.test_compare_methods import comparison, run


def test_only_what_is_between_the_markers_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- b -->\nafter <!-- other -->\n", encoding="utf-8")
    monkeypatch.setattr(paper_figures, "PAGE", page)
    paper_figures.write_between(("<!-- a -->", "<!-- b -->"), ["new", "rows"])
    assert page.read_text(encoding="utf-8") == "before\n<!-- a -->\nnew\nrows\n<!-- b -->\nafter <!-- other -->\n"


def test_the_page_has_every_marker_once() -> None:
    text = paper_figures.PAGE.read_text(encoding="utf-8")
    for marker in (*paper_figures.COMPOSITIONS, *paper_figures.DEPENDENCY, *references.MARKERS):
        assert text.count(marker) == 1


def test_table_4_has_less_error_with_all_of_rho() -> None:
    """sqrt(10) times less for InDif, whose error is in proportion to the noise."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, 2_000)
    table = CodeTable(Domain(("x", "y"), (3, 3)), (x.astype(np.uint8), np.minimum(x, 1).astype(np.uint8)))
    whole, tenth = (float(cell) for cell in paper_figures.errors_table(table)[2].split("|")[2:4])
    assert tenth / whole == pytest.approx(10**0.5, rel=0.02)


def test_a_method_that_does_not_fit_is_told_with_its_limit() -> None:
    why = "at most 5 cells, not 6"
    undone = run("b", 1.0, 0, None, outcome="did not fit", note=why, metrics=(), seconds=None)
    rows = "\n".join(references.page({"Few": comparison([run("a", 1.0, 0, 0.25), undone])}))
    assert f"b: did not fit: {why}." in rows
    assert "**Few**" in rows

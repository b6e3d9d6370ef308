"""What ``privsyn evaluate`` shows at the end: a line a figure, on narrow and on wide terminals."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from privsyn.cli import evaluate_command as command
from privsyn.data_contracts.evaluation import AnalysisFigure, AnalysisResult
from privsyn.evaluation.private_evaluation import Report
from privsyn.evaluation.scores import KINDS
from tests.support.evaluations import make_evaluation


def shown(width: int, against: int = 0) -> list[str]:
    """The lines of the summary; titles are those of the real metrics, as far as there are any."""
    evaluation = make_evaluation(5, against=against)
    tables = []
    for i, scores in enumerate(evaluation.scores):
        metrics = tuple(
            m.model_copy(update={"title": KINDS[m.name].title if m.name in KINDS else m.title}) for m in scores.metrics
        )
        tables.append(scores.model_copy(update={"metrics": metrics, "table": f"other-{i}" if i else "release"}))
    text = io.StringIO()
    changed = evaluation.model_copy(update={"scores": tuple(tables)})
    command._print_summary(
        Report(Path("report.html"), Path("evaluation.json"), changed), 1.5, Console(file=text, width=width)
    )
    return text.getvalue().splitlines()


@pytest.mark.parametrize(("width", "against"), [(80, 0), (80, 1), (160, 0), (160, 2)])
def test_every_figure_is_one_line_that_fits(width: int, against: int) -> None:
    """Seven headline figures and the head, between two borders."""
    lines = shown(width, against)
    box = lines[: next(i for i, line in enumerate(lines) if line.startswith("╰")) + 1]
    assert len(box) == 2 + 1 + 7, "\n".join(lines)
    assert max(map(len, box)) <= width
    pairs = next(line for line in box if "Error of pairs of columns" in line)
    assert "12.4% of real rows" in pairs
    assert ("0..2, lower is better" in pairs) == (width == 160)
    assert ("↓" in pairs) == (width == 80)
    assert "like a sample of" in box[1]


def test_a_figure_that_is_not_known_says_why_below() -> None:
    assert "Membership inference: No hold-out was given." in shown(80)


def test_an_analysis_without_figures_says_why_and_one_figure_is_one() -> None:
    figure = AnalysisFigure(name="x", real=1, std_error=1, synthetic=1, apart=0, close=True)
    made = AnalysisResult(title="median of age", kind="quantile", rows_real=9, rows_synthetic=9, figures=(figure,))
    none = made.model_copy(update={"figures": (), "note": "No row of one of the tables takes part"})
    text = io.StringIO()
    evaluation = make_evaluation(5).model_copy(update={"analyses": (made, none)})
    command._print_summary(
        Report(Path("report.html"), Path("evaluation.json"), evaluation), 1.5, Console(file=text, width=160)
    )
    assert "median of age: 1 of 1 figure within 15 % or two standard errors." in text.getvalue()
    assert "median of age: No row of one of the tables takes part." in text.getvalue()

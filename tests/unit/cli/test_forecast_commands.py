"""What commands show: a forecast beside the check, the table of epsilons, and the figures of an evaluation."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from privsyn.cli import evaluate_command as command
from privsyn.data_contracts.evaluation import AnalysisFigure, AnalysisResult
from privsyn.evaluation.private_evaluation import Report
from privsyn.evaluation.scores import KINDS
from tests.support.commands import privsyn
from tests.support.evaluations import make_evaluation
from tests.support.specs import PEOPLE_YAML


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "people.yaml"
    path.write_text(PEOPLE_YAML)
    return path


def test_a_forecast_beside_the_check(spec: Path) -> None:
    plot = spec.parent / "f.png"
    asked = ("spec", "check", spec, "--rows-about", 344, "--epsilons", "5", "--strength", "0.2")
    done = privsyn(*asked, "--plot", plot, "--json")
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert [a["epsilon"] for a in content["forecast"]["at"]] == [1, 5] and content["noise"]
    assert "0 to 0.2" in " ".join(content["forecast"]["words"])
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "Forecast for about 344 rows" in done.stderr and "depend on the assumption" in done.stderr


def test_without_a_number_of_rows_there_is_no_forecast(spec: Path) -> None:
    assert "forecast" not in json.loads(privsyn("spec", "check", spec, "--json").stdout)
    refused = privsyn("spec", "check", spec, "--strength", 0.5)
    assert refused.exit_code == 2 and "--rows-about" in refused.stderr
    assert "--rows-about: is missing" in privsyn("spec", "check", spec, "--epsilons", "5").stderr
    assert "given several times" in privsyn("spec", "check", spec, "--data", spec, "--data", spec).stderr


def test_epsilon_says_what_an_attacker_learns_and_what_others_chose(spec: Path) -> None:
    done = privsyn("epsilon", "--epsilons", "0.5,1", "--json")
    content = json.loads(done.stdout)
    assert [r["epsilon"] for r in content["risks"]] == [0.5, 1] and content["forecast"] is None
    assert content["risks"][1]["guesses"][0]["after"] == pytest.approx(0.536, abs=0.001)
    assert {"Google", "US Census Bureau"} <= {p["curator"] for p in content["published"]} and content["source"]
    shown = privsyn("epsilon", spec, "--epsilons", "1", "--rows-about", 50)
    assert shown.exit_code == 0 and "17.14" in shown.stdout and "about 50 rows" in shown.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--epsilons", "a,b"), "--epsilons"),
        (("--epsilons", "-1"), "cannot be accounted"),
        (("--delta", "2"), "--epsilons: these cannot be accounted"),
        (("--plot", "x.png"), "--rows-about: is missing"),
        (("--rows-about", "9"), "needs a spec"),
    ],
)
def test_bad_input_is_one_sentence(options: tuple[str, ...], words: str) -> None:
    refused = privsyn("epsilon", *options)
    assert refused.exit_code == 2 and words in refused.stderr and "Traceback" not in refused.stderr


def shown(width: int, against: int = 0) -> list[str]:
    """The lines of the summary; real metrics keep their titles."""
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

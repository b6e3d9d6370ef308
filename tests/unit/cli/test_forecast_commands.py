"""`spec check --rows-about` and `epsilon`: tables, JSON, a picture, and one sentence for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import privsyn
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

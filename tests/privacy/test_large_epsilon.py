"""Bug classes 17 and 18: an evaluation is private and says so, and a large epsilon is warned of and measured.

It does not see attacks on linked rows, linked tables or itemsets, nor on counts that are released beside the rows: the
attack looks at synthetic rows of five columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from privsyn.base.settings import Settings
from privsyn.cli import common
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.evaluation import private_evaluation as evaluation
from privsyn.evaluation.comparison import method
from privsyn.evaluation.comparison.method import MethodInput
from privsyn.evaluation.private_evaluation import AskedEvaluation, Report, evaluate
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics import membership as attacks
from privsyn.tasks.privacy.noise import SeededNoise
from tests.support.releases import few, run
from tests.support.specs import people

Save = Callable[..., str]
QUICK = {"range_queries": 20, "nist_schemas": 5, "nist_queries": 5, "attack_rows": 20}

# 18: large epsilon really leaks

SMALL = Domain.of(dict.fromkeys("abcde", 5))


def attacked(epsilon: float) -> float:
    """AUC of the membership attack on releases of 40 random rows, mean over twenty tables; 0.5 is a guess."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        real, holdout = (CodeTable(SMALL, tuple(rng.integers(5, size=(5, 40)).astype(np.uint8))) for _ in range(2))
        binning = {name: AttributeBins(np.arange(5, dtype=np.int32)) for name in SMALL.attributes}
        made = method.default(MethodInput(real, binning, epsilon, 1e-9, 1, SeededNoise(seed)))
        result = attacks.measure_membership(real, holdout, made.table, (), threads=1)
        found.append(0.5 if result is None else result.auc)  # None: noise left no row to look at
    return float(np.mean(found))


def sees_the_leak() -> bool:
    return attacked(0.5) < 0.56 and attacked(1_000.0) > 0.6


@pytest.mark.slow
def test_18_the_attack_of_the_evaluation_sees_a_large_epsilon_leak() -> None:
    assert sees_the_leak()


@pytest.mark.slow
def test_18_mutant_an_attack_that_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: every distance is 0, so that every release looks safe."""
    blind = lambda targets, rows, ordered, threads=0: np.zeros(targets.rows, np.float32)  # noqa: E731
    monkeypatch.setattr(attacks, "find_closest", blind)
    assert not sees_the_leak()


def warned(epsilon: float) -> bool:
    with common.people.capture() as shown:
        common.warn_of_epsilon(epsilon)
    return "attacks on single people are known to work" in " ".join(shown.get().split())


def test_18_an_epsilon_above_ten_is_warned_of() -> None:
    assert [warned(epsilon) for epsilon in (1.0, 10.0, 10.5, 1e6)] == [False, False, True, True]


def test_18_mutant_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: a bound that nobody passes."""
    monkeypatch.setattr(common, "WARN_EPSILON", float("inf"))
    assert not warned(1e6)


# 17: an evaluation against the real data is private, says so, and has the attack's figure


def is_private(report: Report) -> bool:
    """Whether an evaluation lies in the private root, says what it is, and left the released root alone."""
    page = report.html.read_text(encoding="utf-8").lower()
    inside = all(path.is_relative_to(Settings().private_root) for path in (report.html, report.figures))
    return inside and "private" in page.partition("<body")[2][:3_000]


def evaluated(data: str, holdout: str) -> Report:
    release = run(few(data))
    before = sorted(Settings().released_root.rglob("*"))
    spec = EvaluationSpec.model_validate(QUICK)
    report = evaluate(AskedEvaluation(release.run, holdout=holdout, spec=spec), Settings())
    assert is_private(report)
    assert sorted(Settings().released_root.rglob("*")) == before
    return report


def test_17_an_evaluation_is_private_says_so_and_has_an_attack(places: Path, save: Save) -> None:
    report = evaluated(save(people(200)), save(people(100, seed=1), "holdout.parquet"))
    figures = json.loads(report.figures.read_text(encoding="utf-8"))
    metrics = {m["name"]: m["value"] for m in figures["scores"][0]["metrics"]}
    assert [value for name, value in metrics.items() if "membership" in name and value is not None]


def test_17_mutant_an_evaluation_beside_the_release(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the report is written into the released root."""

    def beside(settings: Settings, *parts: str) -> Path:
        folder = settings.released_root.joinpath(*parts)
        folder.mkdir(parents=True)
        return folder

    monkeypatch.setattr(evaluation, "locate_private_folder", beside)
    with pytest.raises(AssertionError):
        evaluated(save(people(200)), save(people(100, seed=1), "holdout.parquet"))

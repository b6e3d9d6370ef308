"""The verdict on statistical tests with fresh seeds: chance's failures pass, others do not, and a seed repeats them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scipy import stats

from tests.support.fresh_noise import chance, tail
from tests.support.places import ROOT
from tests.support.repeated_noise import FRESH, renew


@pytest.mark.parametrize("failures", [0, 1, 3, 20])
def test_of_equal_rates_it_is_the_binomial(failures: int) -> None:
    assert tail([0.05] * 20, failures) == pytest.approx(stats.binom.sf(failures - 1, 20, 0.05))


def test_a_failure_of_a_sharp_test_does_not_hide_among_those_of_loose_ones() -> None:
    rates = [0.05] * 20 + [1e-5] * 10
    assert chance(rates, []) == 1.0
    assert chance(rates, [0.05, 0.05]) == pytest.approx(tail(rates, 2)) and tail(rates, 2) > 0.2
    assert chance(rates, [1e-5]) == pytest.approx(1e-4, rel=1e-3)
    assert chance(rates, [0.05, 1e-5]) == pytest.approx(1e-4, rel=1e-3)


def test_a_seed_makes_other_seeds_that_are_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FRESH, raising=False)
    assert [renew(seed) for seed in range(3)] == [0, 1, 2]
    monkeypatch.setenv(FRESH, "7")
    found = [renew(seed) for seed in range(100)]
    assert len(set(found)) == 100 and found == [renew(seed) for seed in range(100)]
    monkeypatch.setenv(FRESH, "8")
    assert not set(found) & {renew(seed) for seed in range(100)}


TESTS = """
import pytest
from tests.support.repeated_noise import renew

@pytest.mark.statistical({rate})
def test_that_fails():
    {fails}

@pytest.mark.statistical(1e-6)
def test_that_passes():
    assert renew(1) != 1

def test_of_something_else():
    assert False
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "fails", "code"),
    [
        ("0.05", "assert False", 0),
        ("1e-5", "assert False", 1),
        pytest.param("0.05", "raise OSError", 1, marks=pytest.mark.slow),
        pytest.param("1e-5", "pass", 0, marks=pytest.mark.slow),
    ],
)
def test_what_chance_makes_passes_and_an_error_never(tmp_path: Path, rate: str, fails: str, code: int) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.format(rate=rate, fails=fails))
    plugins = ["-p", "tests.support.fresh_noise", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, str(tmp_path)],
        cwd=ROOT, env={**os.environ, FRESH: "12"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    assert "2 statistical tests" in done.stdout and "make test-noise SEED=12" in done.stdout

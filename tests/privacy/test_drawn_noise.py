"""Bug classes 10 and 11: the noise is exact, as large as its price says, and follows from no seed.

That the chi-square referee has the power and the false-alarm rate that these tests rest on, and many more scales and
shapes: tests/statistical/test_noise.py.

It does not see which noise looks beyond the default three draw: it tests the one function that draws, and releases of
two columns.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from audit import goodness_of_fit as referee
from privsyn import cli
from privsyn.base.settings import Settings
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.folder import ReleaseSummary
from privsyn.tasks.privacy import noise
from privsyn.tasks.privacy.noise import NoNoise, OpenDPNoise, SeededNoise
from tests.support.releases import few, released, run
from tests.support.specs import make_spec, people

Save = Callable[..., str]
pytestmark = pytest.mark.drawn_noise

DRAWS = 20_000

# 10: floating-point noise; too little or too much


def is_right(sigma: float) -> bool:
    """Whether what a release draws looks like the exact discrete Gaussian; a false alarm once in 100,000."""
    return referee.p_value(OpenDPNoise().draw(sigma, DRAWS), sigma) > 1e-5


@pytest.mark.statistical(1e-5)
@pytest.mark.parametrize("sigma", [0.4, 1.0, 7.5])
def test_10_release_noise_is_the_exact_discrete_gaussian(sigma: float) -> None:
    sample = OpenDPNoise().draw(sigma, 3)
    assert sample.dtype == np.int64
    assert is_right(sigma)


def rounded(source: OpenDPNoise, sigma: float, cells: int) -> np.ndarray:
    return np.rint(np.random.default_rng().normal(0, sigma, cells)).astype(np.int64)


def cut_tails(source: OpenDPNoise, sigma: float, cells: int) -> np.ndarray:
    far = np.ceil(2.5 * sigma)
    return np.clip(SeededNoise(1).draw(sigma, cells), -far, far).astype(np.int64)


def scaled(factor: float) -> Callable[..., np.ndarray]:
    draw = OpenDPNoise.draw
    return lambda source, sigma, cells: draw(source, factor * sigma, cells)


@pytest.mark.statistical(1e-5)
@pytest.mark.parametrize(
    ("mutant", "sigma"),
    [
        (scaled(0.7), 7.5),
        (scaled(1.3), 7.5),
        pytest.param(scaled(0.7), 1.0, marks=pytest.mark.slow),
        pytest.param(scaled(1.3), 1.0, marks=pytest.mark.slow),
        (rounded, 0.4),
        (cut_tails, 7.5),
    ],
    ids=["too little", "too much", "too little, small", "too much, small", "rounded floats", "tails cut"],
)
def test_10_mutant_noise_of_another_scale_or_shape(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., np.ndarray], sigma: float
) -> None:
    """Planted mutants of the one function that draws: x 0.7, x 1.3, a rounded continuous Gaussian, cut tails."""
    monkeypatch.setattr(OpenDPNoise, "draw", mutant)
    assert not is_right(sigma)


# 11: weak or seeded generator


def noisy_counts(summary: ReleaseSummary) -> list[int]:
    return [int(n) for n in released(summary, "marginals/one_way.parquet")["count"].to_pylist()]


def two_releases(spec: ReleaseSpec) -> list[list[int]]:
    """Noisy counts of two releases of one request, every generator that has a seed being set to the same one."""
    found = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 - to show that it changes nothing
        found.append(noisy_counts(run(spec, fresh=True)))
    return found


def test_11_no_seed_reaches_release_noise(places: Path, save: Save) -> None:
    for function in (noise.draw, OpenDPNoise, OpenDPNoise.draw):
        assert not {"seed", "rng", "generator"} & set(inspect.signature(function).parameters)
    one, two = two_releases(few(save(people(300)), synthesis={"sweeps": 2, "seed": 7}))
    assert one != two


def test_11_mutant_noise_that_follows_the_seed_of_the_synthesis(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted mutant: a generator made anew from the spec's seed for every draw."""
    monkeypatch.setattr(OpenDPNoise, "draw", lambda source, sigma, cells: SeededNoise(7).draw(sigma, cells))
    one, two = two_releases(few(save(people(300)), synthesis={"sweeps": 2, "seed": 7}))
    assert one == two


def test_11_asking_for_seeded_noise_is_refused() -> None:
    for wish in ({"seed": 1}, {"privacy": {"epsilon": 1.0, "delta": 1e-9, "seed": 1}}, {"noise": "seeded"}):
        with pytest.raises(ValidationError, match="Extra inputs"):
            make_spec(**wish)
    options = {
        option for command in cli.app.registered_commands for option in inspect.signature(command.callback).parameters
    }
    assert "epsilon" in options
    assert not {o for o in options if "noise" in o}


def only_real_noise_is_released(spec: ReleaseSpec, source: Any) -> bool:
    """Whether a run with noise for tests left the released root empty, and says what it is."""
    summary = run(spec, noise=source)
    manifest = json.loads((Path(summary.released) / "manifest.json").read_text(encoding="utf-8"))
    note = (Path(summary.released) / "README.md").read_text(encoding="utf-8")
    released_files = list(Settings().released_root.rglob("*"))
    return released_files == [] and manifest["differentially_private"] is False and "NOT PRIVATE" in note


@pytest.mark.parametrize("source", [SeededNoise(1), NoNoise()], ids=["seeded", "none"])
def test_11_test_noise_cannot_reach_the_released_root(places: Path, save: Save, source: Any) -> None:
    assert only_real_noise_is_released(few(save(people(300))), source)


def test_11_mutant_seeded_noise_that_calls_itself_private(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted mutant: the source for tests says that a release may rest on it."""
    monkeypatch.setattr(SeededNoise, "private", True)
    assert not only_real_noise_is_released(few(save(people(300))), SeededNoise(1))


def test_11_a_run_with_test_noise_is_never_published_later(places: Path, save: Save) -> None:
    """Test noise first, then a real release of the same request: it draws its own."""
    spec = few(save(people(300)))
    fake = noisy_counts(run(spec, noise=NoNoise()))
    real = run(spec)
    assert real.drawn == tuple(step.name for step in STEPS if step.kind is StepKind.RELEASE)
    assert noisy_counts(real) != fake
    for path in Settings().released_root.rglob("manifest.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["differentially_private"] is True

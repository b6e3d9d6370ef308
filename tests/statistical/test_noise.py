"""The noise that is drawn is the noise that is paid for: shape and scale, from both sides."""

import functools
import inspect
import multiprocessing

import numpy as np
import pytest
from scipy import stats

from audit import goodness_of_fit as referee
from privsyn.tasks.privacy import noise
from tests.support.examples import keep_first
from tests.support.repeated_noise import renew

SCALES = (0.3, 0.5, 0.8, 1.0, 1.7, 4.0, 10.0, 37.5, 300.0, 5_000.0)
SOME_FIRST = keep_first(sorted(SCALES, key=lambda sigma: sigma not in (0.3, 1.0, 4.0, 5_000.0)), 4)
pytestmark = pytest.mark.drawn_noise

DRAWS = 15_000
RIGHT = 1e-5  # ten scales: a false alarm about once in 10,000 runs
WRONG = 1e-9


def exact_sample(sigma: float, size: int, seed: int) -> np.ndarray:
    support, probabilities = referee.pmf(sigma)
    return np.random.default_rng(renew(seed)).choice(support, size=size, p=probabilities)


@functools.cache
def drawn(sigma: float) -> np.ndarray:
    """Release noise of this scale, drawn once for all tests that only look at it."""
    return noise.draw(sigma, DRAWS)


@pytest.mark.statistical(RIGHT)
@pytest.mark.parametrize("sigma", SOME_FIRST)
def test_release_noise_is_the_exact_discrete_gaussian(sigma):
    assert referee.p_value(drawn(sigma), sigma) > RIGHT


@pytest.mark.statistical(WRONG)
@pytest.mark.parametrize("sigma", SOME_FIRST)
@pytest.mark.parametrize("factor", keep_first([0.7, 1.3]))
def test_release_noise_of_another_scale_is_rejected(sigma, factor):
    assert referee.p_value(noise.draw(sigma * factor, DRAWS), sigma) < WRONG


def cut(sample: np.ndarray, sigma: float) -> np.ndarray:
    """Tails beyond about 2.2 sigma moved to 2.2 sigma."""
    return np.clip(sample, -np.rint(2.2 * sigma), np.rint(2.2 * sigma)).astype(np.int64)


def heavy(sample: np.ndarray, sigma: float) -> np.ndarray:
    """One draw in fifty is four times as far out."""
    return np.where(np.arange(len(sample)) % 50 == 0, 4 * sample, sample)


def even(sample: np.ndarray, sigma: float) -> np.ndarray:
    """Only even numbers."""
    return sample // 2 * 2


def laplace(sample: np.ndarray, sigma: float) -> np.ndarray:
    """A rounded Laplace of the same variance."""
    return np.rint(np.random.default_rng(3).laplace(0, sigma / np.sqrt(2), len(sample))).astype(np.int64)


def rounded(sample: np.ndarray, sigma: float) -> np.ndarray:
    """A rounded continuous Gaussian: its variance is 1/12 higher, which shows where sigma is small."""
    return np.rint(np.random.default_rng(3).normal(0, sigma, len(sample))).astype(np.int64)


@pytest.mark.statistical(WRONG)
@pytest.mark.parametrize(
    ("shape", "scales"),
    [(cut, SCALES[5:]), (heavy, SCALES[5:]), (even, SCALES[:6]), (laplace, SCALES), (rounded, SCALES[:3])],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_another_shape_is_rejected(shape, scales):
    for sigma in scales:
        assert referee.p_value(shape(drawn(sigma), sigma), sigma) < WRONG, sigma


@pytest.mark.statistical(1e-2)
@pytest.mark.parametrize("sigma", keep_first([0.5, 1.7, 37.5]))
def test_referee_raises_false_alarms_as_often_as_it_says(sigma):
    """Of 400 samples that are right, those below 5 % and 50 % are as many as binomial counts of 400 may be."""
    ps = np.array([referee.p_value(exact_sample(sigma, 3_000, seed), sigma) for seed in range(400)])
    assert ps.min() > RIGHT
    for level in (0.05, 0.5):
        low, high = stats.binom.ppf([1e-6, 1 - 1e-6], 400, level) / 400
        assert low <= (ps < level).mean() <= high


@pytest.mark.parametrize("sigma", SOME_FIRST)
@pytest.mark.parametrize("factor", [0.7, 0.88, 1.12, 1.3])
def test_referee_has_power(sigma, factor):
    """Every one of five samples of another scale is rejected."""
    for seed in range(5):
        assert referee.p_value(exact_sample(sigma * factor, DRAWS, seed), sigma) < WRONG


@pytest.mark.statistical(1e-2)
def test_referee_finds_the_share_that_it_says():
    """Of 60 samples whose sigma is too small by the share that is found nine times of ten, so many are rejected."""
    share = referee.find_detectable_share(4.0, 20_000, 1e-3, missed=0.1)
    wrong = [referee.p_value(exact_sample(4.0 * (1 - share), 20_000, seed), 4.0) < 1e-3 for seed in range(60)]
    low, high = stats.binom.ppf([5e-3, 1 - 5e-3], 60, 0.9)
    assert low <= sum(wrong) <= high


def test_referee_rejects_a_shift_and_an_outlier():
    sample = exact_sample(10.0, DRAWS, 1)
    assert referee.p_value(sample + 1, 10.0) < WRONG
    assert referee.p_value(np.append(sample, 10_000), 10.0) == 0.0


@pytest.mark.statistical(1e-5)
def test_neighbouring_cells_are_uncorrelated():
    sample = noise.draw(20.0, 40_000).astype(float)
    for lag in (1, 2, 7):
        correlation = np.corrcoef(sample[:-lag], sample[lag:])[0, 1]
        assert abs(correlation) < 5 / np.sqrt(len(sample))


@pytest.mark.statistical(RIGHT)
def test_big_draws_come_in_chunks_that_differ(monkeypatch):
    monkeypatch.setattr(noise, "_CHUNK", 1_000)
    sample = noise.draw(1e6, 3_500)
    assert sample.dtype == np.int64 and sample.shape == (3_500,)
    assert not np.array_equal(sample[:1_000], sample[1_000:2_000])
    assert referee.p_value(np.rint(sample / 1e5).astype(np.int64), 10.0) > RIGHT


@pytest.mark.statistical(RIGHT)
def test_threads_draw_exact_noise_that_differs():
    draws = noise.draw_all(noise.OpenDPNoise(), [(10.0, DRAWS // 20)] * 20 + [(1e9, 4)] * 8, threads=4)
    assert referee.p_value(np.concatenate(draws[:20]), 10.0) > RIGHT
    assert len({tuple(d.tolist()) for d in draws[20:]}) == 8
    assert [len(d) for d in draws] == [DRAWS // 20] * 20 + [4] * 8


def test_a_source_with_a_seed_draws_the_same_on_any_number_of_threads():
    asked = [(10.0, 5), (3.0, 0), (7.0, 9)]
    one, four = (noise.draw_all(noise.SeededNoise(3), asked, threads) for threads in (1, 4))
    assert all(map(np.array_equal, one, four)) and [len(d) for d in four] == [5, 0, 9]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_one_thread_ends_the_draws(error):
    class Fails(noise.OpenDPNoise):
        def draw(self, sigma, cells):
            if sigma == 2.0:
                raise error
            return super().draw(sigma, cells)

    with pytest.raises(error):
        noise.draw_all(Fails(), [(1.0, 3), (2.0, 3), (1.0, 3)], threads=2)


def _draw_in_child(_: int) -> tuple[int, ...]:
    return tuple(noise.draw(1e9, 4).tolist())


def test_forked_processes_draw_different_noise():
    noise.draw(1e9, 4)  # the generator is seeded before the fork
    with multiprocessing.get_context("fork").Pool(3) as pool:
        draws = pool.map(_draw_in_child, range(6), chunksize=1)
    assert len({*draws, _draw_in_child(0)}) == 7


def test_release_noise_has_no_seed():
    for function in (noise.draw, noise.OpenDPNoise, noise.OpenDPNoise.draw):
        assert not {"seed", "rng", "generator"} & set(inspect.signature(function).parameters)
    np.random.seed(1)  # noqa: NPY002 - to show that it changes nothing
    first = noise.draw(1e9, 4)
    np.random.seed(1)  # noqa: NPY002
    assert not np.array_equal(first, noise.draw(1e9, 4))


def test_only_the_release_source_is_private():
    assert noise.OpenDPNoise.private
    assert not noise.SeededNoise.private
    assert not noise.NoNoise.private


@pytest.mark.statistical(RIGHT)
def test_seeded_noise_repeats_and_has_its_scale():
    one, two = noise.SeededNoise(renew(7)), noise.SeededNoise(renew(7))
    first = one.draw(10.0, DRAWS)
    assert np.array_equal(first, two.draw(10.0, DRAWS))
    assert not np.array_equal(first, one.draw(10.0, DRAWS))
    assert referee.p_value(first, 10.0) > RIGHT
    assert not noise.NoNoise().draw(3.0, 5).any()


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf"), 2.0**51])
@pytest.mark.parametrize("source", [noise.OpenDPNoise(), noise.SeededNoise(1), noise.NoNoise()])
def test_a_scale_that_protects_nothing_is_refused(source, sigma):
    with pytest.raises(ValueError, match="sigma"):
        source.draw(sigma, 3)


def test_no_cells_is_no_noise():
    assert noise.draw(1.0, 0).shape == (0,)
    with pytest.raises(ValueError, match="cells"):
        noise.draw(1.0, -1)

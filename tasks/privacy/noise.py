"""Release noise; no other module draws it.

Release noise is the discrete Gaussian N_Z(0, sigma^2) over the integers of Canonne, Kamath and Steinke (2020).  OpenDP
samples it exactly: P(x) is proportional to exp(-x^2 / (2 sigma^2)) for every integer x.  Added to an integer vector of
L2 sensitivity Delta it satisfies rho-zCDP with rho = Delta^2 / (2 sigma^2) (their Theorem 14), and no floating-point
arithmetic is involved.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

MAX_SIGMA = 2.0**50
"""Largest noise scale, in counts: above it, int64 could overflow when counts are added."""

_CHUNK = 1 << 18

_LOOK_EVERY = 0.1
"""Seconds between two checks while other threads draw."""


class NoiseSource(Protocol):
    """A source of integer noise; ``private``: whether a release may use it."""

    private: ClassVar[bool]

    def draw(self, sigma: float, cells: int) -> Counts:
        """Return ``cells`` independent draws of scale ``sigma`` (in counts), int64."""
        ...


class ComparisonNoise(NoiseSource, Protocol):
    """Noise for comparing methods on data that is never released, including noise that no release draws."""

    def draw_laplace(self, scale: float, cells: int) -> Counts:
        """Return ``cells`` independent rounded Laplace draws of scale ``scale`` (in counts), int64."""
        ...

    def choose(self, log_weights: npt.NDArray[np.float64], times: int) -> Counts:
        """Draw ``times`` indices by the exponential mechanism: probabilities proportional to exp(log_weights)."""
        ...


class OpenDPNoise:
    """The release source: OpenDP's exact discrete Gaussian.  It has no seed and cannot be given one.

    Its randomness: OpenDP's source marks the build with OpenSSL as secure, and the published 0.16.0 wheel carries its
    own OpenSSL.  There every random byte comes from ``RAND_priv_bytes`` (seen in the disassembled wheel).  OpenSSL
    documents this function as cryptographically secure: a NIST SP 800-90A DRBG of 256-bit security.  The generator
    seeds and reseeds itself from the operating system and fails if it cannot.  OpenDP turns that failure into an error.
    This project tests the distribution of the draws, and that forked processes draw differently, but not the generator
    itself.  Use the published wheels: OpenDP calls a build without OpenSSL non-secure.
    """

    private: ClassVar[bool] = True

    def draw(self, sigma: float, cells: int) -> Counts:
        """Return ``cells`` exact discrete Gaussian draws, int64, shape ``(cells,)``; about 10 microseconds each.

        Costs rho = Delta^2 / (2 sigma^2) zCDP when added to a query of L2 sensitivity Delta.
        Raises ValueError unless 0 < sigma <= MAX_SIGMA and cells >= 0.
        """
        _check(sigma, cells)
        mechanism = _build_mechanism(float(sigma))
        out = np.empty(cells, dtype=np.int64)
        for start in range(0, cells, _CHUNK):
            size = min(_CHUNK, cells - start)
            out[start : start + size] = mechanism(np.zeros(size, dtype=np.int64))
        return out


class SeededNoise:
    """Rounded numpy normal noise with a seed: for tests and benchmarks only, never for a release.

    A run that uses it is marked "not private" in its manifest and cannot be written to ``released/``:
    anyone who knows or guesses the seed can subtract the noise.
    """

    private: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, sigma: float, cells: int) -> Counts:
        """Return ``cells`` draws of round(N(0, sigma^2)), int64; the same seed gives the same sequence."""
        _check(sigma, cells)
        return np.rint(self._generator.normal(0.0, sigma, cells)).astype(np.int64)

    def draw_laplace(self, scale: float, cells: int) -> Counts:
        """Return ``cells`` draws of round(Lap(scale)), int64, of variance about 2 scale^2 + 1/12.

        Rounding an integer count plus Lap(b) is post-processing: sensitivity Delta_1 costs Delta_1 / b of pure epsilon.
        """
        _check(scale, cells)
        return np.rint(self._generator.laplace(0.0, scale, cells)).astype(np.int64)

    def choose(self, log_weights: npt.NDArray[np.float64], times: int) -> Counts:
        """Draw ``times`` independent indices, int64; ``log_weights``: finite, at least one."""
        weights = np.exp(log_weights - log_weights.max())
        return self._generator.choice(weights.size, times, p=weights / weights.sum()).astype(np.int64)


class NoNoise:
    """Zero noise, for tests that compare with an exact answer; never for a release."""

    private: ClassVar[bool] = False

    def draw(self, sigma: float, cells: int) -> Counts:
        """Return ``cells`` zeros, int64, after checking the arguments."""
        _check(sigma, cells)
        return np.zeros(cells, dtype=np.int64)

    def draw_laplace(self, scale: float, cells: int) -> Counts:
        """Return the zeros of :meth:`draw`."""
        return self.draw(scale, cells)

    def choose(self, log_weights: npt.NDArray[np.float64], times: int) -> Counts:
        """Return the first index of the largest weight, ``times`` times."""
        return np.full(times, int(np.argmax(log_weights)), dtype=np.int64)


def draw_all(
    source: NoiseSource,
    requests: Sequence[tuple[float, int]],
    threads: int = 1,
    check: Callable[[], None] = lambda: None,
) -> list[Counts]:
    """Draw independently for each (sigma, cells), in their order, in up to ``threads`` threads.

    Only release noise uses several threads: it has no state in this program, and OpenSSL gives each thread its own
    generator.  Other sources draw one by one, so that a seed gives the same draws.  ``check`` is called between draws
    or every _LOOK_EVERY seconds; an error in it, or in a draw, is raised without waiting for draws under way.
    """
    if threads < 2 or len(requests) < 2 or not isinstance(source, OpenDPNoise):
        return [source.draw(*one) for one in _check_between(requests, check)]
    load_library()
    pool = ThreadPoolExecutor(min(threads, len(requests)))
    try:
        draws = [pool.submit(source.draw, *one) for one in requests]
        while not wait(draws, timeout=_LOOK_EVERY, return_when=FIRST_EXCEPTION).done.issuperset(draws):
            check()
            if any(draw.done() and draw.exception() is not None for draw in draws):
                break
        return [draw.result() for draw in draws]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _check_between(requests: Sequence[tuple[float, int]], check: Callable[[], None]) -> Iterator[tuple[float, int]]:
    for one in requests:
        check()
        yield one


def draw(sigma: float, cells: int) -> Counts:
    """Return release noise, ``OpenDPNoise().draw(sigma, cells)``, which takes no seed."""
    return OpenDPNoise().draw(sigma, cells)


def _check(sigma: float, cells: int) -> None:
    if not math.isfinite(sigma) or not 0 < sigma <= MAX_SIGMA:
        raise ValueError(f"sigma must be positive and at most {MAX_SIGMA:.0f} counts, not {sigma}")
    if cells < 0:
        raise ValueError(f"cells must be 0 or more, not {cells}")


@functools.lru_cache(maxsize=64)
def _build_mechanism(sigma: float) -> Any:
    # Imported here, since it is needed late; not from opendp.prelude, which loads scikit-learn for over a second.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=sigma)


@functools.cache
def load_library() -> None:
    """Import everything that drawing needs in the calling thread: imports in several threads can deadlock."""
    _build_mechanism(1.0)(np.zeros(1, dtype=np.int64))

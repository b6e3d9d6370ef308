"""Time and memory of the earth mover cost on a marginal of 580,464 cells: `python -m benchmarks.earth_mover`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from math import inf

import numpy as np

from privsyn.base.process_memory import memory_mb
from privsyn.tasks.metrics.earth_mover import build_default_hierarchy
from privsyn.tasks.metrics.mgd import Axis, compute_aemc

SHAPE = (12, 278, 174)
RECORDS = 1_000_000

WEIGHTS = {
    "default weights": (1.0, inf, inf),
    "all infinite": (inf, inf, inf),
    "all finite": (1 / 3, 1 / 3, 1 / 3),
    "all finite, odd weights": (0.123456789, 0.5, 0.376543211),
}


def incidents(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return counts of a real and of a synthetic table, shape SHAPE, int64.

    Few incident types and cells hold most records.
    """
    rng = np.random.default_rng(seed)
    rates = np.ones(SHAPE) * (1 + 0.2 * rng.random(12))[:, None, None]
    rates *= _skewed(rng, 278, 0.7)[:, None] * _skewed(rng, 174, 1.3) * rng.gamma(0.5, 1, SHAPE[1:])
    real = _drawn(rng, rates)
    return real, _drawn(rng, rates * rng.gamma(5, 0.2, SHAPE))


def _skewed(rng: np.random.Generator, size: int, power: float) -> np.ndarray:
    return rng.permutation(np.arange(1, size + 1) ** -power)


def _drawn(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """Return counts of RECORDS records drawn with these relative rates."""
    marks = np.cumsum(rates.ravel())
    cells = np.searchsorted(marks, rng.random(RECORDS) * marks[-1], side="right")
    return np.bincount(cells, minlength=rates.size).reshape(SHAPE).astype(np.int64)


def measure(weights: str, tolerance: float) -> None:
    """Print one line: the case, AEMC, wall and CPU seconds, and the process's peak memory."""
    real, synthetic = incidents()
    sizes = zip(SHAPE, (True, False, False), WEIGHTS[weights], strict=True)
    axes = [Axis(build_default_hierarchy([str(i) for i in range(k)], ordered=o).at(1), w) for k, o, w in sizes]
    tiny = tuple(Axis(build_default_hierarchy(["a", "b"], ordered=True).at(1), 1.0) for _ in range(1))
    compute_aemc(np.array([1, 0]), np.array([0, 1]), tiny, 0.0)  # compile
    start, used = time.perf_counter(), time.process_time()
    result = compute_aemc(synthetic, real, axes, tolerance)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    peak = memory_mb("VmHWM") / 1024
    used_text = f"{seconds:6.1f} s (CPU {used:.1f} s)  {peak:.2f} GiB"
    print(f"{weights:24s} Delta {tolerance:<4g} AEMC {result.aemc:.6f}  {used_text}", flush=True)


def lines() -> Iterator[str]:
    """Yield what was made, then one line a case, each measured in a process of its own."""
    real, synthetic = incidents()
    filled = [f"{np.count_nonzero(x) / x.size:.1%}" for x in (real, synthetic)]
    yield f"{' x '.join(map(str, SHAPE))} = {real.size:,} cells; not empty: real {filled[0]}, synthetic {filled[1]}"
    for weights in WEIGHTS:
        for tolerance in ("0", "2"):
            command = [sys.executable, "-m", "benchmarks.earth_mover", weights, tolerance]
            yield subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(sys.argv[1], float(sys.argv[2]))
    else:
        for line in lines():
            print(line, flush=True)

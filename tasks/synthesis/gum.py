"""GUM: the Gradually Update Method's iterations (paper, sections 5.2 and 5.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.step_options import Synthesis
from privsyn.tasks.kernels.gum_update import TargetMarginal, Updater
from privsyn.tasks.kernels.streams import derive_stream, shuffle

PATIENCE, LEAST_GAIN = 3, 0.01
"""GUM ends when PATIENCE iterations in a row have not lowered its best error by the share LEAST_GAIN."""

_ORDER, _VISIT = 1, 2  # purposes of random streams


def run_gum(
    columns: Sequence[np.ndarray],
    targets: Sequence[TargetMarginal],
    settings: Synthesis,
    component: int,
    threads: int,
    report: Callable[[int], None],
) -> None:
    """Iterate GUM on one component, in place, until the error no longer falls (PATIENCE).

    An iteration's error is the sum of the L1 errors of its visits.
    """
    best, waited = math.inf, 0
    order: NDArray[np.int64] = np.arange(len(targets))
    with Updater(columns, settings.seed, threads) as updater:
        for t in range(settings.iterations):
            shuffle(order, derive_stream(settings.seed, _ORDER, component, t))
            alpha = compute_alpha(t, settings)
            error = 0.0
            for i in order.tolist():
                error += updater.visit(targets[i], alpha, settings.duplicate_share, _VISIT, component, t, i)
            waited = 0 if error < best * (1 - LEAST_GAIN) else waited + 1
            best = min(best, error)
            if error == 0 or waited == PATIENCE:
                break
            report(t + 1)
    report(settings.iterations)


def compute_alpha(iteration: int, settings: Synthesis) -> float:
    """Return the update rate alpha of an iteration, counted from 0 (section 5.3, "Gradually Decreasing alpha").

    With a0 = alpha, k = decay_rate, s = decay_every: step a0 k^floor(t/s), exponential a0 e^(-kt),
    linear a0 / (1 + kt), square_root a0 / sqrt(1 + kt).
    """
    t, k = iteration, settings.decay_rate
    if settings.decay == "step":
        return settings.alpha * k ** (t // settings.decay_every)
    if settings.decay == "exponential":
        return settings.alpha * math.exp(-k * t)
    if settings.decay == "linear":
        return settings.alpha / (1 + k * t)
    return settings.alpha / math.sqrt(1 + k * t)

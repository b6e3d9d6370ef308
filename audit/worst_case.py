"""The worst case that is audited: a small table, a canary that every look sees, and a spec that spends it all.

The canary falls into a cell of every marginal that no low-count rule removes, so it moves every answer by the full
sensitivity and the release's whole budget is at stake.  The table is one at which it also changes which marginals are
chosen: two columns depend on each other just as much as it takes to be selected.
"""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa

from audit.lockstep import LAST_LOOK
from audit.mutants import UnNoisedSelection
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.privacy.noise import SeededNoise

DELTA = 0.05
"""Large on purpose: what happens with probability 1e-9 is not seen in thousands of runs."""

EPSILONS = (0.5, 1.0, 4.0)

RECORDS = 10
"""Records of one person, all of them the same: noise of tens of counts, so that whole numbers hide nothing."""

_COLUMNS = ("a", "b", "c")
_CELL = 500  # rows of each of the eight cells
_MOST = 100  # how many times RECORDS rows may be added to (0, 0, 0) and (0, 0, 1)
_PILOTS = 3  # pilot runs a table


def make_audited_spec(epsilon: float, trends: float = 0.0) -> ReleaseSpec:
    """Return three columns of two values.

    The split is one at which all planted faults weigh much, the accountant the one whose mu is bounded, the rest the
    default.  ``trends``: their part of the
    third share, which is most of the budget then; they say what pairs would, so that a choice by exact scores shows
    the canary without them only.
    """
    split = {"one_way": 0.75, "selection": 0.2, "measurement": 0.05}
    if trends:
        split = {"one_way": 0.2, "selection": 0.1, "measurement": 0.7}
    return ReleaseSpec.model_validate(
        {
            "dataset": "audit",
            "data": "in-memory",
            "unit": {"records_per_person": RECORDS},
            "privacy": {"epsilon": epsilon, "delta": DELTA},
            "budget": {"epsilon": epsilon, "delta": DELTA},
            "accountant": "gaussian",
            "columns": {name: {"kind": "integer", "min": 0, "max": 1} for name in _COLUMNS},
            "split": {**split, "trends": trends},
        }
    )


def make_neighbours(more: int) -> tuple[pa.Table, pa.Table]:
    """Return the tables without and with the canary.

    Every cell 500 times, (0, 0, c) ``more`` times more; the canary is RECORDS times (0, 0, 0).
    """
    cells = np.array(list(itertools.product((0, 1), repeat=len(_COLUMNS))))
    rows = np.concatenate([np.repeat(cells, _CELL, axis=0), cells[np.arange(more) % 2]])
    sides = (rows, np.concatenate([rows, np.zeros((RECORDS, len(_COLUMNS)), dtype=rows.dtype)]))
    without, with_canary = (pa.table(dict(zip(_COLUMNS, side.T, strict=True))) for side in sides)
    return without, with_canary


def find_worst_pair(spec: ReleaseSpec, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Return neighbours at which a selection by exact scores shows the canary, found in pilot runs with seeded noise.

    By bisection: the canary is RECORDS rows more of those that are added, so it changes the selection where as many
    more rows do.
    """
    low, high = 0, _MOST
    none = _asked(spec, 0, seed)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _asked(spec, middle, seed) == none else (low, middle)
    near = range(max(low - 1, 0), high + 1)
    return make_neighbours(RECORDS * max(near, key=lambda steps: _shown(spec, steps, seed)))


def _asked(spec: ReleaseSpec, steps: int, seed: int) -> object:
    """Return the last look's questions where the scores have no noise."""
    pilot = UnNoisedSelection(spec, make_neighbours(RECORDS * steps), SeededNoise(seed))
    return pilot.run(canary=False).asked[LAST_LOOK]


def _shown(spec: ReleaseSpec, steps: int, seed: int) -> float:
    """Return how often the last look's questions show the canary."""
    pilot = UnNoisedSelection(spec, make_neighbours(RECORDS * steps), SeededNoise(seed))
    return float(np.mean([pilot.run(canary=True).evidence[f"{LAST_LOOK} asked"] for _ in range(_PILOTS)]))

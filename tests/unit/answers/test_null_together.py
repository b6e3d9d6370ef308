"""Means where nulls and numbers share a combined code: the interval allows for any part of it to be null."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from privsyn.answers.counted import answer_means
from privsyn.answers.question import Question
from tests.support.answered import released
from tests.support.specs import make_spec

COLUMNS = {
    "pay": {"kind": "number", "min": 0, "max": 1_000, "bins": 8, "exact": [9_999], "nullable": True},
    "group": {"kind": "categorical", "values": ["a", "b"]},
}


def test_a_mean_is_held_where_the_first_counts_say_that_a_combined_code_is_all_null() -> None:
    rng = np.random.default_rng(0)
    pay = np.append(rng.uniform(0, 400, 1_500), rng.uniform(500, 1_000, 1_500))
    pay[1_480:1_500] = 9_999
    group = np.repeat(["a", "b"], 1_500)
    rows = pa.table({"pay": pa.array(pay, mask=np.isin(np.arange(3_000), range(2_990, 3_000))), "group": group})
    asked = make_spec(COLUMNS, privacy={"epsilon": 0.7, "delta": 1e-9}, synthesis={"sweeps": 2})
    found = next(f for f in (released(rows, asked, seed) for seed in range(30)) if together(f.recode["pay"].coarse))
    recode = found.recode["pay"]
    weight = recode.weight.copy()
    weight[-2:] = 0.0, 1.0
    found.recode["pay"] = replace(recode, weight=weight)
    mean = answer_means(Question.of(found, ("group",), None, ("pay",)), "pay", 0.95)
    real = float(pay[:1_500].mean())
    assert mean.source == "implied" and mean.low[0] <= real <= mean.high[0]
    assert mean.estimate[0] < real - 50, "the estimate itself follows the shares"


def together(coarse: np.ndarray) -> bool:
    """Whether the exact value and null share a code of their own."""
    return bool(coarse[-1] == coarse[-2] != coarse[-3])

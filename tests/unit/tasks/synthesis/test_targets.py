"""Cells known as empty: by hand, and what rows make of them."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.kernels.gum_update import TargetMarginal
from privsyn.tasks.steps.synthesize import synthesize
from privsyn.tasks.synthesis import sweep
from privsyn.tasks.synthesis.sweep import find_empty_cells


def pair(wanted: list[list[float]], sigma: float) -> TargetMarginal:
    table = np.array(wanted)
    return TargetMarginal((0, 1), table.shape, table.ravel(), sigma)


def test_only_where_one_follows_from_the_other_much_is_expected_and_nothing_is_wanted() -> None:
    """Of 4,000 rows: the first value decides; the second splits, so its 0 is the columns'; the third is too small."""
    wanted = [[2_000.0, 0.0, 5.0], [0.0, 1_000.0, 900.0], [0.0, 0.0, 95.0]]
    np.testing.assert_array_equal(
        find_empty_cells([pair(wanted, 60.0)]).reshape(3, 3), [[False, True, True], [True, False, False], [False] * 3]
    )
    wanted[0][1] = 7.0
    assert not find_empty_cells([pair(wanted, 60.0)]).reshape(3, 3)[0, 1]


def test_unknown_noise_and_marginals_other_than_pairs_say_nothing() -> None:
    alone = TargetMarginal((0,), (2,), np.array([100.0, 0.0]), 1.0)
    found = find_empty_cells(
        [alone, pair([[1_000.0, 0.0], [0.0, 1_000.0]], 0.0), pair([[1_000.0, 0.0], [0.0, 1_000.0]], 9.0)]
    )
    assert found.tolist() == [False] * 7 + [True, True] + [False]


@pytest.mark.parametrize("kept", [True, False])
def test_noise_elsewhere_tears_apart_no_column_that_follows(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    domain = Domain.of({"place": 12, "region": 3, **{f"x{i}": 40 for i in range(4)}})
    place = rng.integers(0, 12, 12_000).astype(np.uint8)
    others = [((place * 3 + rng.integers(0, 9 + i, place.size)) % 40).astype(np.uint8) for i in range(4)]
    true = CodeTable(domain, (place, place // 4, *others))
    cliques = [("place", "region"), *((a, f"x{i}") for a in ("place", "region") for i in range(4))]
    noisy = [Marginal((a,), count(true, (a,)).astype(float)) for a in domain.attributes]
    noisy += [Marginal(c, count(true, c).astype(float), 40.0) for c in cliques]
    for m in noisy[7:]:
        m.counts[:] = np.maximum(m.counts + np.rint(rng.normal(0, 40, m.counts.shape)), 0)
        m.counts[:] *= true.rows / m.counts.sum()
    if not kept:
        monkeypatch.setattr(sweep, "MIN_EXPECTED_COUNT", np.inf)
    made = synthesize(noisy, domain, Synthesis(seed=3, oversample=1), true.rows)
    torn = int((made.column("place") // 4 != made.column("region")).sum())
    assert torn < 12 if kept else torn > 120

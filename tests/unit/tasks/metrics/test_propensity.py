"""pMSE on tables whose best probabilities are known, its null by simulation, and the AUC's view of relations."""

from __future__ import annotations

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.metrics.models import Propensity, measure_propensity
from privsyn.tasks.metrics.samples import sample_rows, take_rows

WIDE = Domain.of({f"a{i}": 6 for i in range(8)})


def table(domain: Domain, *columns: object) -> CodeTable:
    return CodeTable(domain, tuple(np.ascontiguousarray(c, dtype=np.uint8) for c in columns))


def even(rows: int, seed: int) -> CodeTable:
    return table(WIDE, *np.random.default_rng(seed).integers(6, size=(8, rows)))


def found(real: CodeTable, synthetic: CodeTable, **settings: int) -> Propensity:
    result = measure_propensity(real, synthetic, **settings)
    assert result is not None
    return result


def test_pmse_by_hand() -> None:
    """Code 0: 60 real and 20 synthetic rows, p = 1/4; code 1: 20 real and 60 synthetic, p = 3/4.  So pMSE = 1/16.

    One free parameter over 80 rows each: the null is 1 / (8 x 80) x 1/2 = 1/1280.
    """
    domain = Domain.of({"x": 3})
    real, synthetic = table(domain, [0] * 60 + [1] * 20), table(domain, [0] * 20 + [1] * 60)
    result = found(real, synthetic)
    assert result.rows == 80
    assert result.pmse == pytest.approx(1 / 16, rel=1e-4)
    assert result.ratio == pytest.approx(80, rel=1e-4)
    assert result.auc == pytest.approx(0.75, abs=0.02)  # 9/16 + 1/2 x 6/16


@pytest.mark.slow
def test_the_null_expectation_by_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows redrawn from the real ones are rows of a right model fitted to them: ratio 1.  Fresh rows: 2.

    Also where only a quarter of the rows is compared.  One ratio has an sd of about 0.22 times its mean.
    """
    monkeypatch.setattr("privsyn.tasks.metrics.models.SMALLEST_AUC", 10**9)
    redrawn, fresh, part = [], [], []
    for seed in range(60):
        rng = np.random.default_rng([seed, 1])
        real, other = (table(WIDE, *rng.integers(6, size=(8, 2_000))) for _ in range(2))
        again = take_rows(real, rng.integers(2_000, size=2_000))
        redrawn.append(found(real, again).ratio)
        fresh.append(found(real, other).ratio)
        part.append(found(real, again, max_rows=500, seed=seed).ratio)
    assert np.mean(redrawn) == pytest.approx(1, abs=0.1)
    assert np.mean(fresh) == pytest.approx(2, abs=0.2)
    assert np.mean(part) == pytest.approx(1, abs=0.1)


def test_the_larger_table_is_sampled_and_seeds_decide() -> None:
    real, synthetic = even(700, 0), even(300, 1)
    assert found(real, synthetic, seed=3).rows == 300
    assert found(real, synthetic, seed=3) == found(real, synthetic, seed=3)
    assert found(real, synthetic, seed=3).pmse == pytest.approx(found(sample_rows(real, 300, 3), synthetic).pmse)
    assert found(real, synthetic, seed=3).pmse != pytest.approx(found(real, synthetic, seed=4).pmse)
    assert found(real, synthetic, max_rows=40).rows == 40


def test_awkward_tables() -> None:
    none, one = even(0, 0), even(1, 0)
    assert measure_propensity(none, one) is None
    assert measure_propensity(one, none) is None
    assert measure_propensity(none, none) is None
    assert found(one, even(1, 1)).auc is None
    constant = table(Domain.of({"x": 3}), np.zeros(30))
    assert found(constant, constant) == Propensity(30, 0.0, None, 0.5)
    with pytest.raises(ValueError, match="at least one row"):
        measure_propensity(one, one, max_rows=0)

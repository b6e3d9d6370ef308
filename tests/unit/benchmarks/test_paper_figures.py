"""The errors of Table 4 follow the noise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import paper_figures
from privsyn.data_contracts.domain import Domain
from privsyn.tasks.kernels.counting import CodeTable


def test_table_4_has_less_error_with_all_of_rho() -> None:
    """sqrt(10) times less for InDif, whose error is in proportion to the noise."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, 2_000)
    table = CodeTable(Domain(("x", "y"), (3, 3)), (x.astype(np.uint8), np.minimum(x, 1).astype(np.uint8)))
    whole, tenth = (float(cell) for cell in paper_figures.errors_table(table)[2].split("|")[2:4])
    assert tenth / whole == pytest.approx(10**0.5, rel=0.02)

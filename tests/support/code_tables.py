"""Tables of codes, their marginals and recodes, as tests of single steps and metrics make them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import AttributeRecode
from privsyn.tasks.kernels.counting import CodeTable, count


def make_table(domain: Domain, columns: Iterable[Any], *, padded: bool = False) -> CodeTable:
    """The table of these columns of codes."""
    types = [choose_code_dtype(size + padded) for size in domain.sizes]
    typed = (np.ascontiguousarray(codes, dtype) for codes, dtype in zip(columns, types, strict=True))
    return CodeTable(domain, tuple(typed), padded)


def write_rows(domain: Domain, rows: Iterable[Sequence[int]], *, padded: bool = False) -> CodeTable:
    """The table of these rows of codes."""
    codes = np.array(list(rows), dtype=np.int64).reshape(-1, len(domain.attributes))
    return make_table(domain, codes.T, padded=padded)


def draw_table(domain: Domain, rows: int, seed: int = 0, *, padded: bool = False) -> CodeTable:
    """Independent columns, small codes more often than large ones."""
    rng = np.random.default_rng(seed)
    return make_table(domain, [(rng.random(rows) ** 2 * (size + padded)) for size in domain.sizes], padded=padded)


def draw_related_table(domain: Domain, rows: int) -> CodeTable:
    """Columns that follow one number, with something of their own."""
    rng = np.random.default_rng(5)
    base = rng.integers(0, 12, rows)
    own = (
        (base * (i + 1) // 3 + rng.random(rows) ** 2 * size).astype(int) % size for i, size in enumerate(domain.sizes)
    )
    return make_table(domain, own)


def count_marginals(table: CodeTable, cliques: Iterable[Clique] = (), sigma: float = 0.0) -> list[Marginal]:
    """The exact one-ways and the marginals of these cliques, said to have this noise."""
    every = [*((a,) for a in table.domain.attributes), *cliques]
    return [Marginal(clique, count(table, clique).astype(float), sigma) for clique in every]


def make_recode(counts: Any, coarse: Any = None, kept: Any = None, variance: float = 1.0) -> AttributeRecode:
    """A recode with these fine counts, each code by itself unless told otherwise."""
    size = len(counts)
    codes = np.arange(size) if coarse is None else coarse
    keeps = np.ones(size, bool) if kept is None else kept
    estimate = np.array(counts, float)
    return AttributeRecode(np.array(codes, np.int32), np.array(keeps), np.ones(size), estimate, np.full(size, variance))

"""Step *graphical rows* (postprocess): rows of the graphical model that the package mbi fits to noisy counts.

Private-PGM (McKenna, Sheldon and Miklau 2019): the maximum-entropy distribution among the weighted least-squares fits
to the measured marginals.  The package itself rounds its marginals to rows.  It is optional:
``pip install 'privsyn-flows[pgm]'``.  Post-processing of released counts costs no budget.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.kernels.streams import derive_stream

ITERATIONS = 1_000
"""Largest number of mirror descent steps; fewer if the fit stops changing."""

TOLERANCE = 1e-7

_GRAPHICAL = 103  # purpose of the random streams, used by no other step


def draw_graphical_rows(
    measured: Sequence[Marginal],
    one_ways: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    domain: Domain,
    rows: int,
    seed: int,
) -> CodeTable:
    """Draw ``rows`` rows of codes over ``domain``.

    measured: noisy counts of cliques, which may be negative, with their sigma.  Their graph should be close to a tree:
    time and memory grow with its largest junction clique.  one_ways: attribute -> (noisy counts, variances).  Rows
    depend on floating-point work of jax: the same seed gives the same rows with the same versions on one machine.
    Raises ModuleNotFoundError if mbi is not installed.
    """
    if rows == 0:
        return CodeTable(domain, tuple(np.zeros(0, choose_code_dtype(n)) for n in domain.sizes))
    mbi = _load_mbi()
    space = mbi.Domain(domain.attributes, domain.sizes)
    looks = [_build_one_way(mbi, a, *one_ways[a]) for a in domain.attributes]
    looks += [mbi.LinearMeasurement(m.counts.ravel(), m.attributes, m.sigma) for m in measured]
    total = max(1.0, float(np.mean([one_ways[a][0].sum() for a in domain.attributes])))
    model = mbi.estimation.MirrorDescent().estimate(space, looks, total, iters=ITERATIONS, tol=TOLERANCE)
    number = int(derive_stream(seed, _GRAPHICAL) >> np.uint64(33))  # the package takes 31 bits
    with _hide_hints():
        drawn = mbi.extensions.synthetic_data(model, rows, number).to_dict()
    return CodeTable(domain, tuple(drawn[a].astype(choose_code_dtype(domain.size(a))) for a in domain.attributes))


def estimate_model_mb(cliques: Sequence[tuple[str, ...]], domain: Domain) -> float:
    """Return the size of the cliques' junction tree in MB.  Raises ModuleNotFoundError if mbi is not installed."""
    mbi = _load_mbi()
    return float(mbi.junction_tree.hypothetical_model_size(mbi.Domain(domain.attributes, domain.sizes), list(cliques)))


@contextmanager
def _hide_hints() -> Iterator[None]:
    """Drop the package's log records on the root logger, which are hints about its compiler's speed."""
    root = logging.getLogger()

    def other(record: logging.LogRecord) -> bool:
        return record.module != "synthetic_data"

    root.addFilter(other)
    try:
        yield
    finally:
        root.removeFilter(other)


def _load_mbi() -> Any:
    """Return the package, set to double precision and without a cache on disk."""
    if importlib.util.find_spec("mbi") is None:
        raise ModuleNotFoundError("No module named 'mbi': pip install 'privsyn-flows[pgm]'", name="mbi")
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    import mbi

    return mbi


def _build_one_way(mbi: Any, attribute: str, counts: NDArray[np.float64], variance: NDArray[np.float64]) -> Any:
    """Return the measurement of one attribute, each cell in units of its own standard deviation."""
    sigma = np.sqrt(variance)
    return mbi.LinearMeasurement(counts / sigma, (attribute,), 1.0, mbi.WeightedQuery(1.0 / sigma))

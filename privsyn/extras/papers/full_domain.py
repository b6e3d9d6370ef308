"""Methods that hold a number for every cell of the full contingency table, so that few columns fit.

Each asks the public bins' domain first and raises DomainTooLargeError where it has more cells than the method's limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.evaluation.comparison.method import (
    Choices,
    LaplaceQuery,
    MethodInput,
    MethodResult,
    check_cells,
    compute_laplace_scale,
)
from privsyn.tasks.estimation.marginals import apply_norm_sub
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.kernels.streams import draw_systematically
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho

Floats = NDArray[np.float64]
Measured = Sequence[tuple[NDArray[np.intp], Floats]]
"""(for each cell of the domain, the cell of the marginal that it is in; the marginal's noisy counts), both flat."""

LAPLACE_CELLS = 1 << 22
MWEM_CELLS = 1 << 18
"""Most cells of the full contingency table, for seconds and at most a few hundred MB."""

ROUNDS = 10
INNER = 100
"""MWEM: rounds, and passes over all answers so far after each."""

TOTAL_SHARE = Fraction(1, 20)
"""Part of rho that the number of rows gets where a method must know it."""


def laplace_table(trial: MethodInput) -> MethodResult:
    """Add Laplace noise to every cell of the full contingency table, and make rows in proportion to the noisy counts.

    One vector of L1 sensitivity ``records``, so Lap(records / epsilon) keeps (epsilon, 0), and (epsilon, delta) all the
    more: for one look no composition has less noise.  Counts are made non-negative as everywhere, by norm-sub to the
    noisy sum.
    """
    domain = trial.bins
    check_cells(domain, LAPLACE_CELLS, "laplace-table")
    scale = compute_laplace_scale(Fraction(trial.epsilon), trial.records)
    exact = count(trial.to_bins(trial.rows), domain.attributes)
    noisy = exact + trial.noise.draw_laplace(scale, exact.size).reshape(exact.shape)
    total = max(0, int(noisy.sum()))
    rows = decode_rows(apply_norm_sub(noisy.astype(np.float64), total), total, domain, trial.seed)
    return MethodResult(rows, pure=(LaplaceQuery(domain.attributes, exact.size, trial.records, scale),))


def mwem(trial: MethodInput) -> MethodResult:
    """Run MWEM (Hardt, Ligett and McSherry 2012) over all pairs: INNER inner iterations, the last approximation.

    In each of ROUNDS rounds the exponential mechanism picks the pair with the largest L1 distance between its marginal
    and the approximation.  One row moves this distance by at most 1.  The pair is measured whole, since its cells are
    disjoint.  Multiplicative weights then follow all answers so far.

    Every price is in zCDP, at the accountant's rho for (epsilon, delta); the original has Laplace noise and pure
    epsilon.  The number of rows costs 1/20 of rho, because neighbours do not share this number.  Half of the rest is
    for picks and half for measurements, evenly over the rounds.
    """
    domain, records = trial.bins, trial.records
    check_cells(domain, MWEM_CELLS, "mwem")
    rows, rho = trial.to_bins(trial.rows), split_rho(trial)
    workload = list_pairs(domain)
    truth = list(rows.counts(workload, threads=trial.threads))
    rho_each = rho * (1 - TOTAL_SHARE) / (2 * ROUNDS)
    spread, sigma = spread_for(rho_each), compute_sigma(rho_each, records)
    counted_rows, total = measure_number_of_rows(trial, rho * TOTAL_SHARE)
    queries, measured = [counted_rows], []
    estimate = np.full(domain.cells(domain.attributes), total / domain.cells(domain.attributes))
    for _ in range(ROUNDS):
        estimated = [project(estimate, find_cells(clique, domain), domain.cells(clique)) for clique in workload]
        errors = [float(np.abs(t.ravel() - o).sum()) for t, o in zip(truth, estimated, strict=True)]
        picked = int(trial.noise.choose(np.array(errors) * (float(spread) / (2 * records)), 1)[0])
        counts, clique = truth[picked], workload[picked]
        queries.append(Query(clique, counts.size, records, sigma))
        answer = counts.ravel() + trial.noise.draw(sigma, counts.size)
        measured.append((find_cells(clique, domain), answer.astype(np.float64)))
        estimate = reweigh(estimate, measured, total)
    chosen = tuple(dict.fromkeys(q.attributes for q in queries[1:] if len(q.attributes) > 1))
    table = decode_rows(estimate, total, domain, trial.seed)
    return MethodResult(table, zcdp=tuple(queries), marginals=chosen, choices=(Choices(ROUNDS, spread),))


def reweigh(estimate: Floats, measured: Measured, total: float) -> Floats:
    """Apply INNER passes of multiplicative weights: each cell times exp((answer - estimate) / (2 total)), then scaled.

    ``estimate``: flat, shape (cells,).
    """
    for _ in range(INNER):
        for cells, answer in measured:
            step = (answer - project(estimate, cells, answer.size)) / (2.0 * total)
            estimate = estimate * np.exp(np.clip(step, -1.0, 1.0))[cells]
            estimate *= total / estimate.sum()
    return estimate


def find_cells(clique: Clique, domain: Domain) -> NDArray[np.intp]:
    """Return for each cell of the whole domain, in row-major order, the cell of the clique's marginal that it is in."""
    codes = np.indices(domain.sizes, sparse=True)
    places = [domain.index(a) for a in clique]
    cells = np.ravel_multi_index(np.broadcast_arrays(*(codes[i] for i in places)), domain.shape(clique))
    return np.ascontiguousarray(np.broadcast_to(cells, domain.sizes)).ravel()


def project(estimate: Floats, cells: NDArray[np.intp], size: int) -> Floats:
    """Return the marginal of ``size`` cells of a flat estimate."""
    return np.bincount(cells, weights=estimate, minlength=size).astype(np.float64, copy=False)


def split_rho(trial: MethodInput) -> Fraction:
    """Return the trial's promise as a budget of zCDP; Gaussian DP does not price the exponential mechanism."""
    accountant = trial.settings.accountant
    return convert_epsilon_to_rho(trial.epsilon, trial.delta, "tight" if accountant == "gaussian" else accountant)


def spread_for(rho: Fraction) -> Fraction:
    """Return a spread of log weights that one choice may have at ``rho``: spread^2 / 8 is ``rho`` or just below."""
    spread = math.sqrt(8.0 * float(rho))
    while Fraction(spread) ** 2 > 8 * rho:
        spread = math.nextafter(spread, 0.0)
    return Fraction(spread)


def measure_number_of_rows(trial: MethodInput, rho: Fraction) -> tuple[Query, int]:
    """Return the query of the number of rows at ``rho``, and its noisy answer, at least 1."""
    query = Query(("rows",), 1, trial.records, compute_sigma(rho, trial.records))
    return query, max(1, trial.rows.rows + int(trial.noise.draw(query.sigma, 1)[0]))


def list_pairs(domain: Domain) -> list[Clique]:
    """Return the workload: every pair, or the one attribute."""
    return list(combinations(domain.attributes, 2)) or [domain.attributes]


def decode_rows(counts: Floats, rows: int, domain: Domain, seed: int) -> CodeTable:
    """Return ``rows`` rows in random order, each cell as often as its share says, rounded up or down."""
    generator = np.random.default_rng([seed, 0xF11])
    cells = np.repeat(np.arange(counts.size), draw_systematically(counts.ravel(), rows, generator.random()))
    codes = np.unravel_index(generator.permutation(cells), domain.sizes)
    return CodeTable(domain, tuple(c.astype(choose_code_dtype(n)) for c, n in zip(codes, domain.sizes, strict=True)))

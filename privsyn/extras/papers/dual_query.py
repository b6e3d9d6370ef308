"""DualQuery (Gaboardi, Gallego Arias, Hsu, Roth and Wu 2014): rows that answer the worst queries best, one a round."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.evaluation.comparison.method import Choices, MethodInput, MethodResult
from privsyn.extras.papers.full_domain import TOTAL_SHARE, list_pairs, measure_number_of_rows, split_rho
from privsyn.tasks.kernels.counting import CodeTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEP = 2.0
SAMPLE = 1_000
"""Step and sample size of PrivSyn, section 6.1."""

MOST_ROUNDS = 2_000
"""Rows at most, whatever the budget."""

STARTS, SWEEPS = 32, 50


def dual_query(trial: MethodInput) -> MethodResult:
    """Make as many rows as the budget allows.

    Each round asks SAMPLE queries, drawn where the rows so far are most wrong.

    The queries are the cells of all pairs and their negations.  Let c real rows and h of the rows so far fulfil
    a query q.  After t rounds, q has the weight exp(STEP (t c / N - h)).  Sampling by this weight is the exponential
    mechanism.  One more person raises every c by 0 to records, so each draw is of bounded range STEP t records / N.

    The original takes the number of rows for public (bounded neighbours); here N is a noisy count at 1/20 of rho, and
    the draws compose in zCDP up to the rest.  A round's row is the best that coordinate ascent finds for the sampled
    queries, where the original has an integer program: post-processing.
    """
    domain, budget = trial.bins, split_rho(trial)
    counted_rows, rows = measure_number_of_rows(trial, budget * TOTAL_SHARE)
    spreads = compute_spreads(budget * (1 - TOTAL_SHARE), trial.records, rows)
    workload = list_pairs(domain)
    counted = list(trial.to_bins(trial.rows).counts(workload, threads=trial.threads))
    truth = np.concatenate([c.ravel() for c in counted]).astype(np.float64)
    whole, hits = float(trial.rows.rows), np.zeros(truth.size)
    generator, synthetic_rows = np.random.default_rng([trial.seed, 0xD0A1]), []
    places = _Places(domain, workload)
    for done in range(len(spreads)):
        present = STEP * (done * truth / rows - hits)
        absent = STEP * (done * (whole - truth) / rows - (done - hits))
        drawn = trial.noise.choose(np.concatenate([present, absent]), SAMPLE)
        votes = np.bincount(drawn, minlength=2 * truth.size).astype(np.float64)
        row = find_best_row(places.tables(votes[: truth.size] - votes[truth.size :]), domain, workload, generator)
        hits[places.of(row)] += 1
        synthetic_rows.append(row)
    codes = np.array(synthetic_rows, dtype=np.int64).T
    columns = tuple(c.astype(choose_code_dtype(n)) for c, n in zip(codes, domain.sizes, strict=True))
    choices = tuple(Choices(SAMPLE, spread) for spread in spreads if spread)
    return MethodResult(CodeTable(domain, columns), zcdp=(counted_rows,), choices=choices)


def compute_spreads(rho: Fraction, records: int, rows: int) -> list[Fraction]:
    """Return the spread of each round's draws, as many rounds as cost at most ``rho`` together; the first is free."""
    spreads, spent = [Fraction(0)], Fraction(0)
    while len(spreads) < MOST_ROUNDS:
        spread = Fraction(STEP) * len(spreads) * records / rows
        spent += Choices(SAMPLE, spread).rho
        if spent > rho:
            break
        spreads.append(spread)
    return spreads


def find_best_row(
    tables: Sequence[Floats], domain: Domain, workload: Sequence[Clique], generator: np.random.Generator
) -> Ints:
    """Return codes of a row with a high sum of its cells in ``tables``, one table a clique of ``workload``.

    Coordinate ascent from STARTS random rows: each attribute in turn takes its best code, until none changes.
    """
    places = [tuple(domain.index(a) for a in clique) for clique in workload]
    rows = np.stack([generator.integers(0, n, STARTS) for n in domain.sizes], axis=1)
    for _ in range(SWEEPS):
        before = rows.copy()
        for a, size in enumerate(domain.sizes):
            gain = np.zeros((STARTS, size))
            for place, table in zip(places, tables, strict=True):
                if place == (a,):
                    gain += table
                elif place[0] == a:
                    gain += table[:, rows[:, place[1]]].T
                elif a in place:
                    gain += table[rows[:, place[0]]]
            rows[:, a] = gain.argmax(axis=1)
        if np.array_equal(rows, before):
            break
    totals = sum(table[tuple(rows[:, i] for i in place)] for place, table in zip(places, tables, strict=True))
    best: Ints = rows[int(np.argmax(totals))]
    return best


class _Places:
    """Where the cells of each clique stand in one flat vector of all."""

    def __init__(self, domain: Domain, workload: Sequence[Clique]) -> None:
        self._shapes = [domain.shape(clique) for clique in workload]
        self._own = [[domain.index(a) for a in clique] for clique in workload]
        self._starts = np.cumsum([0, *(domain.cells(clique) for clique in workload)])

    def tables(self, flat: Floats) -> list[Floats]:
        """Return one table a clique."""
        parts = np.split(flat, self._starts[1:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def of(self, row: Ints) -> Ints:
        """Return the cells that ``row`` is in."""
        cells = [np.ravel_multi_index(row[axes], shape) for axes, shape in zip(self._own, self._shapes, strict=True)]
        return self._starts[:-1] + np.array(cells)

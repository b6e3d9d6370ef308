"""Synthesize: rows whose marginals approach the given ones, by GUM (paper, sections 5.2 and 5.3).

Belongs here: the start from the one-ways, the iterations with their decay and early end, separate and
join.  Does not belong here: one update (tasks/kernels/updater.py), appended attributes
(tasks/append_attributes.py), consistency of the marginals (tasks/make_consistent.py).

Post-processing of released counts: costs no budget.  The same marginals, settings and rows give the
same table on any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import networkx as nx
import numpy as np

from data_contracts.domain import Clique, Domain, code_dtype
from data_contracts.spec import Synthesis
from tasks.kernels.counting import CodeTable, checked_cells, thread_count
from tasks.kernels.streams import shuffle, stream, systematic, uniform
from tasks.kernels.updater import Target, Updater
from tasks.marginals import Marginal, one_ways

Progress = Callable[[int, int], None]

MAX_ROWS = (1 << 31) - 1
"""Most rows that one table can have here."""

PATIENCE, LEAST_GAIN = 3, 0.01
"""GUM ends when this many iterations in a row have not lowered its best error by this share."""

_START, _ORDER, _VISIT, _JOIN = range(4)  # purposes of random streams


def synthesize(
    marginals: Sequence[Marginal],
    domain: Domain,
    settings: Synthesis,
    rows: int,
    threads: int = 0,
    progress: Progress | None = None,
) -> CodeTable:
    """Make ``rows`` rows of codes over ``domain`` that follow ``marginals``.

    marginals: the one-way of every attribute, then any larger ones; finite, non-negative, consistent,
    with one common total.  They are scaled to ``rows``; one without any count counts as uniform.
    threads: 0 for all cores.  progress: called with (iterations done, iterations at most).
    Raises ValueError for missing one-ways, wrong shapes, negative counts, or rows outside 0 .. 2**31 - 1.
    """
    if not 0 <= rows <= MAX_ROWS:
        raise ValueError(f"rows must be from 0 to {MAX_ROWS:,}, not {rows:,}")
    for marginal in marginals:
        _check(marginal, domain)
    starts = one_ways(marginals, domain)
    columns = [_start(starts[a], rows, settings.seed, domain.index(a)) for a in domain.attributes]
    larger = [m for m in marginals if len(m.attributes) > 1]
    groups = [group for group in components([m.attributes for m in larger], domain) if len(group) > 1]
    for g, group in enumerate(groups if rows else []):
        numbers = [domain.index(a) for a in group]
        targets = [_target(m, group, rows) for m in larger if m.attributes[0] in group]
        report = _reporter(progress, g, len(groups), settings.iterations)
        _update([columns[i] for i in numbers], targets, settings, numbers[0], thread_count(threads), report)
        if g > 0:
            _reorder(columns, numbers, stream(settings.seed, _JOIN, numbers[0]))
    return CodeTable(domain, tuple(columns))


def output_rows(total: float, settings: Synthesis) -> int:
    """Number of rows to make: the setting, or ``total``, the noisy estimate of the private table's rows, rounded.

    The exact number of private records is private and takes no part.
    """
    return max(0, round(total)) if settings.rows == "auto" else settings.rows


def components(cliques: Sequence[Clique], domain: Domain) -> list[Clique]:
    """The connected components of the attributes under the cliques, each and all in domain order.

    Separate and join (section 5.3): components share no marginal, so each is synthesized on its own.
    """
    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(domain.attributes)
    for clique in cliques:
        nx.add_path(graph, clique)
    return sorted((domain.ordered(c) for c in nx.connected_components(graph)), key=lambda c: domain.index(c[0]))


def alpha_at(iteration: int, settings: Synthesis) -> float:
    """The update rate alpha of an iteration, counted from 0 (section 5.3, "Gradually Decreasing alpha").

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


def _check(marginal: Marginal, domain: Domain) -> None:
    names = ", ".join(marginal.attributes)
    checked_cells(domain.shape(marginal.attributes), marginal.attributes)
    if marginal.counts.shape != domain.shape(marginal.attributes):
        raise ValueError(f"{names}: counts of shape {marginal.counts.shape} in this domain")
    if not np.isfinite(marginal.counts).all() or (marginal.counts < 0).any():
        raise ValueError(f"{names}: counts must be finite and not negative")


def _start(one_way: np.ndarray, rows: int, seed: int, attribute: int) -> np.ndarray:
    """A column of ``rows`` codes with the one-way's shares, in random order."""
    draws = stream(seed, _START, attribute)
    quotas = systematic(one_way, rows, uniform(draws))
    column = np.repeat(np.arange(one_way.size, dtype=code_dtype(one_way.size)), quotas)
    shuffle(column, stream(seed, _START, attribute, 1))
    return column


def _target(marginal: Marginal, group: Clique, rows: int) -> Target:
    wanted = marginal.counts.astype(np.float64).ravel()
    total = wanted.sum()
    wanted = wanted * (rows / total) if total > 0 else np.full(wanted.size, rows / wanted.size)
    return Target(tuple(group.index(a) for a in marginal.attributes), marginal.counts.shape, wanted)


def _update(
    columns: list[np.ndarray],
    targets: list[Target],
    settings: Synthesis,
    component: int,
    threads: int,
    report: Callable[[int], None],
) -> None:
    """Iterate GUM on one component, in place, until the error no longer falls.

    An iteration's error is the sum of the L1 errors that its visits found.  See PATIENCE.
    """
    best, waited = math.inf, 0
    order = np.arange(len(targets))
    with Updater(columns, settings.seed, threads) as updater:
        for t in range(settings.iterations):
            shuffle(order, stream(settings.seed, _ORDER, component, t))
            alpha = alpha_at(t, settings)
            error = sum(
                updater.visit(targets[i], alpha, settings.duplicate_share, _VISIT, component, t, int(i)) for i in order
            )
            waited = 0 if error < best * (1 - LEAST_GAIN) else waited + 1
            best = min(best, error)
            if error == 0 or waited == PATIENCE:
                break
            report(t + 1)
    report(settings.iterations)


def _reorder(columns: list[np.ndarray], numbers: list[int], start: np.uint64) -> None:
    """Put a component's rows in a new random order, so that joining it to the others is independent."""
    order = np.arange(columns[numbers[0]].size, dtype=np.uint32)
    shuffle(order, start)
    for i in numbers:
        columns[i] = columns[i][order]


def _reporter(progress: Progress | None, group: int, groups: int, iterations: int) -> Callable[[int], None]:
    def report(done: int) -> None:
        if progress is not None:
            progress(group * iterations + done, groups * iterations)

    return report

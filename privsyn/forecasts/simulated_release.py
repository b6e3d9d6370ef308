"""One release in memory of a table made from public things, and its figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from privsyn.answers.counted import Question, answer_means
from privsyn.answers.released_counts import MemoryCounts
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.engine.memory import MemoryRun, draw_from_seed, name_by_files
from privsyn.engine.request import Request
from privsyn.evaluation.coded_tables import encode_table, to_bins
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs.binning import list_counted_alone
from privsyn.tasks.kernels.counting import CodeTable, count_all
from privsyn.tasks.metrics.marginal_distance import compute_l1_distances, draw_cliques
from privsyn.tasks.metrics.subsample import find_equivalent_subsample

Floats = NDArray[np.float64]

MOST_PAIRS = 300
"""Pairs of columns that are compared; of more, so many at random."""

_LEVEL = 0.95
SHARES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Random samples of the table that a release is compared with, as shares of its rows."""


@dataclass(frozen=True)
class ReleaseQuality:
    """What one release of a known table is worth.

    ``noise``: column -> standard deviation of the noise of a bin's count, in records; ``misplaced``: column -> share
    of the rows that would have to change their bin; ``mean_errors``: column of numbers -> standard error of its mean;
    ``seen``: the strength that as many pairs reach as were measured, None where none was; ``pairs``: measured pairs;
    ``sample``: as good as a random sample of this share of the rows; ``codes``: column -> codes in which its pairs are
    counted, of columns that have any; ``strengths``: compared or measured pair -> how strongly it is related;
    ``measured``: those that were.
    """

    noise: dict[str, float]
    misplaced: dict[str, float]
    mean_errors: dict[str, float]
    seen: float | None
    pairs: int
    sample: float | None
    codes: dict[str, int]
    strengths: dict[Clique, float]
    measured: frozenset[Clique]


def draw_strengths(bins: CodeTable, cliques: list[Clique]) -> Floats:
    """Return how strongly each pair is related.

    The share of rows that would have to change for independence, 0 to below 1.
    """
    found = []
    for counts in count_all(bins, cliques, threads=1):
        shares = counts / max(int(counts.sum()), 1)
        found.append(0.5 * float(np.abs(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))).sum()))
    return np.array(found)


def find_threshold(strength: Floats, share: float) -> float | None:
    """Return the strength that a ``share`` of the pairs, 0 to 1, reaches; None for a share of 0."""
    if share == 0 or not len(strength):
        return None
    ranked, number = np.sort(strength)[::-1], max(round(share * len(strength)), 1)
    return float(np.sqrt(max(ranked[min(number, len(ranked) - 1)], 1e-4) * ranked[number - 1]))


def simulate_figures(request: Request, fine: CodeTable, seed: int) -> ReleaseQuality:
    """Return the figures of one release of ``fine``, rows in the request's fine codes, with seeded noise."""
    order = request.column_order or tuple(request.spec.released_columns)
    asked = replace(request, spec=request.spec.with_rows(seed=seed), column_order=order)
    steps = build_steps(asked)

    given = {"encode": {"encoded_rows": fine.to_arrow()}}
    made = MemoryRun(asked, steps, draw_from_seed(seed), given=given).run()
    released = MemoryCounts.of_run(asked, name_by_files(steps, made))
    real, rows = to_bins(fine, asked.encoding.groups), made["decode"]["synthetic"]
    synthetic = encode_table(rows.to_batches(), asked.encoding).bins
    singles = [(name,) for name in real.domain.attributes]
    alone = set(list_counted_alone(asked.encoding.binning))
    related = [name for name in real.domain.attributes if name not in alone]
    pairs = draw_cliques(Domain.of({name: real.domain.size(name) for name in related}), 2, MOST_PAIRS, 0)
    inside = {pair for counts in released.joint for pair in combinations(counts.attributes, 2)}
    distances = compute_l1_distances(real, synthetic, [*singles, *pairs], threads=1)
    order_of = {name: place for place, name in enumerate(related)}
    measured = sorted({tuple(sorted(pair, key=order_of.__getitem__)) for pair in inside if order_of.keys() >= {*pair}})
    compared = list(dict.fromkeys((*pairs, *measured)))
    strengths = dict(zip(compared, map(float, draw_strengths(real, compared)), strict=True))
    return ReleaseQuality(
        noise=_draw_noise(released),
        misplaced={name: float(d) / 2 for (name,), d in zip(singles, distances, strict=False)},
        mean_errors=_average_errors(released),
        seen=find_threshold(np.array([strengths[pair] for pair in pairs]), len(inside) / max(comb(len(related), 2), 1)),
        pairs=len(inside),
        sample=_sample(real, pairs, float(distances[len(singles) :].mean())) if pairs else None,
        codes={name: released.recode[name].size for name in related},
        strengths=strengths,
        measured=frozenset(measured),
    )


def _draw_noise(released: MemoryCounts) -> dict[str, float]:
    """Return the noise of a bin of public codes, in records: of all its fine codes, all measurements taken together."""
    found = {}
    for name, measured in released.single.items():
        precision = sum(1 / counts.sigma**2 for counts in measured)
        groups = released.codecs[name].groups
        found[name] = float(np.sqrt(len(groups) / (int(groups.max()) + 1) / precision))
    return found


def _average_errors(released: MemoryCounts) -> dict[str, float]:
    """Return the standard error of every mean that the release's answers give."""
    found = {}
    for name in released.columns:
        if released.reach[name] is not None and released.codecs[name].in_order:
            answer = answer_means(Question.of(released, (), None, (name,)), name, _LEVEL)
            found[name] = float(answer.std_error[0]) if len(answer.std_error) else float("nan")
    return found


def _sample(real: CodeTable, pairs: list[Clique], distance: float) -> float | None:
    """Return the share of the rows whose random sample is as far from them as the release, over pairs of columns."""
    score = lambda table: float(compute_l1_distances(real, table, pairs, threads=1).mean())  # noqa: E731
    return find_equivalent_subsample(score, real, distance, "lower", SHARES)

"""Two releases pooled against one of the same price: ``python -m benchmarks.improve [--seeds N] [--tables A B]``.

The tables are public and the noise is seeded: nothing here is a release.  Runs are in memory, by the steps that give a
release's rows.  Printed for each table: the mean L1 error of all pairs of one release of epsilon 0.5, of two of 0.5
pooled, and of one release of the same total rho, each with the standard deviation over the seeds; and by how much the
pooled ones err more than the one, with the standard error of that over the seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from benchmarks.accuracy import base_spec, rows_of
from privsyn.data_contracts.public_counts import Improvement
from privsyn.evaluation.comparison import method
from privsyn.evaluation.comparison.method import MethodInput, MethodResult, MethodSettings
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs import plan
from privsyn.tasks.metrics.marginal_distance import average_l1, list_all_cliques
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, convert_rho_to_epsilon
from privsyn.tasks.privacy.noise import SeededNoise

DELTA = 1e-9


def make_pooled_releases(trial: MethodInput, epsilons: Sequence[float]) -> MethodResult:
    """Make a release at each epsilon and the trial's delta, each improving those before it; return the last one."""
    names = [{"run": f"run-{i}", "epsilon": epsilon, "delta": trial.delta} for i, epsilon in enumerate(epsilons)]
    improves = Improvement.model_validate({"earlier": names[:-1], "epsilon": epsilons[-1], "delta": trial.delta})
    request = method.request_of(trial, trial.settings.mechanism)
    request = replace(request, spec=request.spec.model_copy(update={"improves": improves}))
    return method.run_steps(trial, request, build_steps(request))


def trial(name: str, epsilon: float, seed: int) -> MethodInput:
    """Return a trial on a public table, one thread."""
    spec = base_spec(name)
    rows, encoding = rows_of(name), plan(spec)
    return MethodInput(
        rows.fine, encoding.binning, epsilon, DELTA, spec.unit.records, SeededNoise(seed), seed, threads=1,
        settings=MethodSettings.of(spec),
    )  # fmt: skip


def compared(name: str, epsilon: float, times: int, seeds: int) -> np.ndarray:
    """Return mean L1 errors of all pairs, shape (seeds, 3): one release, ``times`` pooled, one of their total rho."""
    rows = rows_of(name)
    pairs = list_all_cliques(rows.bins.domain, 2)
    rho = convert_epsilon_to_rho(epsilon, DELTA, "gaussian")
    together = convert_rho_to_epsilon(Fraction(times) * rho, DELTA, "gaussian")
    found = []
    for seed in range(seeds):
        first = trial(name, epsilon, 3 * seed)
        found.append(
            [
                average_l1(rows.bins, made.table, pairs)
                for made in (
                    method.default(first),
                    make_pooled_releases(replace(first, noise=SeededNoise(3 * seed + 1)), [epsilon] * times),
                    method.default(trial(name, together, 3 * seed + 2)),
                )
            ]
        )
    return np.array(found)


def line(name: str, epsilon: float, found: np.ndarray, times: int) -> str:
    """Return a row of the table, as markdown."""
    mean, spread = found.mean(axis=0), found.std(axis=0, ddof=1)
    more = found[:, 1].mean() / found[:, 2].mean() - 1
    error = np.hypot(*(found[:, i].std(ddof=1) / found[:, i].mean() for i in (1, 2))) / np.sqrt(len(found))
    cells = [f"{m:.4f} ±{s:.4f}" for m, s in zip(mean, spread, strict=True)]
    return f"| {name} | {epsilon:g} x {times} | {' | '.join(cells)} | {more:+.1%} ±{error:.1%} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Two releases pooled against one of the same price.")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--epsilon", type=float, default=0.5)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--tables", nargs="+", default=["adult", "stroke_ist", "gss_happiness"])
    asked = parser.parse_args()
    print("| table | epsilon | one release | pooled | one of the same total rho | pooled errs more by |")
    print("|---|---|---|---|---|---|")
    for name in asked.tables:
        found = compared(name, asked.epsilon, asked.times, asked.seeds)
        print(line(name, asked.epsilon, found, asked.times), flush=True)


if __name__ == "__main__":
    main()

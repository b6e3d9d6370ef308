"""This project's methods against packages of the same names, on five columns of Adult: a table in Markdown.

``python -m benchmarks.referees`` prints it; the peers need ``make peers``.  A peer that is not installed, or does not
finish, is told so in its line.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import combinations

from benchmarks.compare_tables import load_split_table, only
from benchmarks.peers import REFEREES
from privsyn.evaluation.comparison.compare_methods import METHODS
from privsyn.evaluation.comparison.method import Method, MethodInput
from privsyn.tasks.metrics.marginal_distance import average_l1
from privsyn.tasks.privacy.noise import SeededNoise

TABLE, COLUMNS = "adult", 5
EPSILONS, SEEDS = (0.2, 1.0), (0, 1, 2)
OURS = ("default", "mst", "mst-pgm", "aim", "privbayes", "privbayes-exponential", "mwem")
THEIRS = ("mst-dpmm", "mst-smartnoise", "aim-dpmm", "aim-smartnoise", "privbayes-dpmm", "mwem-smartnoise")


def trial(epsilon: float, seed: int) -> MethodInput:
    """Return the columns of fewest values, all training rows, one record a person."""
    whole = load_split_table(TABLE)
    sizes = dict(zip(whole.train.domain.attributes, whole.train.domain.sizes, strict=True))
    rows = only(whole.train, sorted(sizes, key=lambda a: sizes[a])[:COLUMNS])
    made = whole.trial(epsilon, seed, rows)
    binning = {a: made.binning[a] for a in rows.domain.attributes}
    return MethodInput(
        rows,
        binning,
        epsilon,
        made.delta,
        1,
        SeededNoise(seed),
        seed,
        1,
        settings=made.settings,
    )


def errors(method: Method, epsilon: float) -> list[tuple[float, float]]:
    """Return mean L1 error of all pairs and of all triples, one of each per seed."""
    found = []
    for seed in SEEDS:
        asked = trial(epsilon, seed)
        made, names = method.run(asked).table, asked.rows.domain.attributes
        found.append(tuple(float(average_l1(asked.rows, made, list(combinations(names, k)))) for k in (2, 3)))
    return found  # type: ignore[return-value]


def lines() -> Iterator[str]:
    """Yield the table, line by line as it is known."""
    yield "| epsilon | method | pairs | triples |"
    yield "|---|---|---|---|"
    methods = [*(METHODS[n] for n in OURS), *(REFEREES[n].method() for n in THEIRS)]
    for epsilon in EPSILONS:
        for method in methods:
            try:
                pairs, triples = zip(*errors(method, epsilon), strict=True)
                told = f"{_spread(pairs)} | {_spread(triples)}"
            except (ImportError, TimeoutError, MemoryError, RuntimeError) as why:
                told = f"{type(why).__name__}: {str(why)[:80]} | "
            yield f"| {epsilon:g} | {method.name} | {told} |"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.4f} ±{statistics.stdev(values):.4f}"


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)

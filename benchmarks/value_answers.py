"""Coverage of answers about single values of numbers: ``python -m benchmarks.value_answers [RELEASES]`` (100).

Releases of one made-up table of 4,000 rows at epsilon 1; each question with and without the counts of single values.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa

from privsyn.answers.conditions import read_condition
from privsyn.answers.counted import answer_counts
from privsyn.answers.question import Question
from tests.support.answered import released
from tests.support.specs import make_spec

ROWS = 4_000
COLUMNS = {
    "wages": {"kind": "integer", "min": 0, "max": 200_000},
    "hours": {"kind": "integer", "min": 0, "max": 1_000},
    "rate": {"kind": "number", "min": 0, "max": 100, "decimals": 2},
    "sex": {"kind": "categorical", "values": ["m", "f"]},
}
QUESTIONS = (
    "wages == 1781",
    "wages == 20500",
    "wages != 20500",
    "wages in [1781, 20500]",
    "wages == 30000",
    "hours == 40",
    "hours == 41",
    "hours > 40",
    "rate == 1.25",
    "rate < 1.25",
)


def make_rows() -> pa.Table:
    """Return wages, hours and rates of which some values are frequent."""
    rng = np.random.default_rng(1)
    wages, chance = np.exp(rng.normal(9.5, 0.8, ROWS)).astype(int).clip(1, 99_999), rng.random(ROWS)
    frequent = [chance < 0.2, chance < 0.35, chance < 0.42]
    return pa.table(
        {
            "wages": np.select(frequent, [1_781, 20_500, 48_017], wages),
            "hours": np.where(rng.random(ROWS) < 0.45, 40, rng.integers(1, 90, ROWS)),
            "rate": np.where(rng.random(ROWS) < 0.3, 1.25, rng.integers(0, 9_999, ROWS) / 100),
            "sex": rng.choice(["m", "f"], ROWS),
        }
    )


def main() -> None:
    """Print how often 95 % intervals hold, and how wide they are."""
    rows, releases = make_rows(), int(sys.argv[1]) if len(sys.argv) > 1 else 100
    asked = make_spec(COLUMNS, privacy={"epsilon": 1.0, "delta": 1e-9}, synthesis={"sweeps": 1})
    found: dict[str, list[list[tuple[bool, float]]]] = {text: [] for text in QUESTIONS}
    real: dict[str, int] = {}
    for seed in range(releases):
        one = released(rows, asked, seed)
        by_cells = replace(one, cache={**one.cache, **{("split cells", column): None for column in COLUMNS}})
        for text in QUESTIONS:
            condition = read_condition(text, one.language)
            real[text] = int(condition.holds({name: rows[name] for name in rows.column_names}).sum())
            answers = [answer_counts(Question.of(counts, (), condition), 0.95) for counts in (by_cells, one)]
            ends = [(float(answer.low[0]), float(answer.high[0])) for answer in answers]
            found[text].append([(low <= real[text] <= high, high - low) for low, high in ends])
    print("| question | rows | by cells: held, width | with counted values |\n|---|---|---|---|")
    for text, every in found.items():
        held, width = np.moveaxis(np.array(every, dtype=float), -1, 0).mean(axis=1)
        ways = [f"{share:.2f}, {rows_wide:,.0f}" for share, rows_wide in zip(held, width, strict=True)]
        print(f"| `{text}` | {real[text]:,} | {' | '.join(ways)} |")


if __name__ == "__main__":
    main()

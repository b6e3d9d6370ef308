"""Draw docs/img/gss.png: the example's real table beside its release.  Needs matplotlib.

    python docs/make_picture.py demo/gss.parquet demo/released/RUN/synthetic.parquet

The General Social Survey extract is public, so this comparison may be; of a private table it may not.
"""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

REAL, SYNTHETIC = "#3a3a3a", "#d1495b"


def shares(values: pd.Series, order: list[object]) -> np.ndarray:
    """Return share of each value in ``order`` among all rows."""
    return values.value_counts(normalize=True, dropna=False).reindex(order).fillna(0).to_numpy()


def bars(axis: plt.Axes, real: pd.Series, synthetic: pd.Series, title: str) -> None:
    """Draw two rows of bars a value."""
    order = sorted(set(real.dropna()) | set(synthetic.dropna()))
    place = np.arange(len(order))
    axis.bar(place - 0.2, shares(real, order), 0.4, color=REAL, label="real")
    axis.bar(place + 0.2, shares(synthetic, order), 0.4, color=SYNTHETIC, label="synthetic")
    axis.set_xticks(place[:: max(1, len(order) // 8)], [str(order[i]) for i in place[:: max(1, len(order) // 8)]])
    axis.set_title(title, loc="left")
    axis.set_ylabel("share of rows")
    axis.legend(frameon=False)


def very_happy(table: pd.DataFrame, by: str, order: list[str]) -> pd.Series:
    """Return share of very happy people in each group."""
    return (table["happy"] == "very happy").groupby(table[by]).mean().reindex(order)


def cells(real: pd.DataFrame, synthetic: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return share of every cell of every 2-way table of the categorical columns, in both tables."""
    names = [c for c in synthetic if synthetic[c].nunique() <= 13]
    pairs = []
    for a, b in combinations(names, 2):
        both = [t.groupby([a, b], observed=True, dropna=False).size() / len(t) for t in (real, synthetic)]
        pairs.append(pd.concat(both, axis=1).fillna(0).to_numpy())
    found = np.concatenate(pairs)
    return found[:, 0], found[:, 1]


def main(real_path: str, synthetic_path: str) -> None:
    """Draw three panels and write the picture."""
    real, synthetic = pd.read_parquet(real_path), pd.read_parquet(synthetic_path)
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    bars(axes[0], real["educ"], synthetic["educ"], "Years of school")
    order = [
        "never", "lt once a year", "once a year", "sevrl times a yr", "once a month", "2-3x a month",
        "nrly every week", "every week", "more thn once wk",
    ]  # fmt: skip
    for table, color, name in ((real, REAL, "real"), (synthetic, SYNTHETIC, "synthetic")):
        axes[1].plot(very_happy(table, "attend", order).to_numpy(), "o-", color=color, label=name)
    axes[1].set_xticks(range(len(order)), order, rotation=35, ha="right")
    axes[1].set_ylim(0)
    axes[1].set_title("Very happy, by attendance of services", loc="left")
    axes[1].legend(frameon=False)
    x, y = cells(real, synthetic)
    axes[2].loglog([1e-4, 1], [1e-4, 1], color="0.7", lw=1)
    axes[2].loglog(np.maximum(x, 1e-4), np.maximum(y, 1e-4), ".", ms=2, color=SYNTHETIC, alpha=0.5)
    axes[2].set_title(f"All {len(x):,} cells of 2-way tables", loc="left")
    axes[2].set_xlabel("share, real")
    axes[2].set_ylabel("share, synthetic")
    out = Path(__file__).with_name("img") / "gss.png"
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])

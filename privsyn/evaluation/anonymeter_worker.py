"""anonymeter's three attacks, a program for an interpreter with anonymeter, which need not have privsyn.

Standard input is an npz file.  The arrays ``real``, ``holdout`` and ``synthetic`` hold codes of fine cells, shape
(rows, columns).  The arrays with the same names and the suffix ``_bins`` hold codes of public bins.  The file also has
``ordered`` (which columns have an order), ``attacks`` (their number) and ``seed``.

The program prints one JSON object: attack -> risk beyond hold-out rows, its 95 % interval, and the success rates on
real and hold-out rows.  The attack ``inference`` also has its column.  A failed attack has null.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

COLUMNS_OF_A_CLAIM, MOST_TRIES = 3, 20_000


def read_table(codes: np.ndarray, ordered: np.ndarray) -> pd.DataFrame:
    """Return codes as a table: numbers for ordered columns, text for others."""
    return pd.DataFrame({str(i): codes[:, i] if o else codes[:, i].astype(str) for i, o in enumerate(ordered)})


def describe(evaluator: Any) -> dict[str, float]:
    """Return the risk of an attack, with its interval and success rates."""
    results, risk = evaluator.results(), evaluator.risk()
    rates = {"attack": results.attack_rate.value, "control": results.control_rate.value}
    return {"risk": risk.value, "low": risk.ci[0], "high": risk.ci[1], **rates}


def single_out(files: Any, seed: int, attacks: int) -> dict[str, float]:
    """Claim that only one person has certain values of some columns."""
    from anonymeter.evaluators import SinglingOutEvaluator

    real, holdout, synthetic = (read_table(files[n], files["ordered"]) for n in ("real", "holdout", "synthetic"))
    columns = min(COLUMNS_OF_A_CLAIM, real.shape[1])
    evaluator = SinglingOutEvaluator(real, synthetic, attacks, columns, holdout, max_attempts=MOST_TRIES, seed=seed)
    return describe(evaluator.evaluate())


def link(files: Any, seed: int, attacks: int) -> dict[str, float]:
    """Join two halves of a person's columns through the synthetic row nearest to both."""
    from anonymeter.evaluators import LinkabilityEvaluator

    real, holdout, synthetic = (read_table(files[n], files["ordered"]) for n in ("real", "holdout", "synthetic"))
    halves = list(real.columns[::2]), list(real.columns[1::2])
    return describe(LinkabilityEvaluator(real, synthetic, halves, attacks, control=holdout).evaluate(n_jobs=1))


def infer(files: Any, seed: int, attacks: int) -> dict[str, float]:
    """Guess each column's bin from the others; return the column with the largest risk."""
    from anonymeter.evaluators import InferenceEvaluator

    names = ("real_bins", "holdout_bins", "synthetic_bins")
    real, holdout, synthetic = (read_table(files[n], files["ordered"]) for n in names)
    found = []
    for secret in real.columns:
        known = [c for c in real.columns if c != secret]
        evaluator = InferenceEvaluator(real, synthetic, known, secret, n_attacks=attacks, control=holdout)
        found.append({**describe(evaluator.evaluate(n_jobs=1)), "column": int(secret)})
    return max(found, key=lambda attack: attack["risk"])


ATTACKS: dict[str, Callable[[Any, int, int], dict[str, float]]] = {
    "singling_out": single_out,
    "linkability": link,
    "inference": infer,
}


def main() -> None:
    """Run the attacks on the tables from standard input."""
    import polars as pl

    found: dict[str, dict[str, float] | None] = {}
    with np.load(io.BytesIO(sys.stdin.buffer.read())) as files:
        tables, seed, attacks = dict(files), int(files["seed"]), int(files["attacks"])
    with contextlib.redirect_stdout(io.StringIO()):
        for name, attack in ATTACKS.items():
            np.random.seed(seed % 2**32)  # noqa: NPY002 - anonymeter draws its targets with it
            pl.set_random_seed(seed)
            try:
                found[name] = attack(tables, seed, attacks)
            except (ArithmeticError, RuntimeError, ValueError):
                found[name] = None
    print(json.dumps(found))


if __name__ == "__main__":
    main()

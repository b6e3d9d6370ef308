"""Households by Google's dpsynth: ``python dpsynth_households.py FOLDER --epsilons 1 --seeds 4``, in its environment.

It runs with Python 3.12 or later where dpsynth (google/dpsynth at cf8075f of August 2026) and mbi (ryan112358/mbi) are
installed from their repositories, since neither is on the package index, and without this project: FOLDER holds what
``python -m benchmarks.households --hand-over FOLDER`` wrote, and ``--made FOLDER`` of the same command scores what
this script leaves there.  Settings are those of its relational example (MST of 100 iterations, three slots,
``size_sliced``); ``--mechanism aim`` is its default (AIM, two slots, ``empty_token``).  Budget: zCDP of epsilon and
delta by the conversion that this project uses, handed over as rho.  Null is a level of categories, and out of domain
for numbers.
"""

from __future__ import annotations

import argparse
import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from dpsynth import discrete_mechanisms, domain
from dpsynth.local_mode import vectorized_transformations
from dpsynth.relational import ForeignKeyRelation, MultiTableConfig

MISSING, OUTSIDE = "missing", -999_999
_undiscretize = vectorized_transformations.undiscretize


def undiscretize(bins: np.ndarray, *rest: Any, **named: Any) -> np.ndarray:
    """Return the values of bins; as it is, ``bins - 1`` of unsigned bytes is 255 where a value is out of domain."""
    return _undiscretize(bins.astype(np.int64), *rest, **named)


def describe(column: dict[str, Any]) -> Any:
    """Return a column of a spec as dpsynth has it."""
    if column["kind"] == "categorical":
        values = [*column["values"], *([MISSING] if column["nullable"] else [])]
        return domain.CategoricalAttribute(possible_values=values, out_of_domain_index=0)
    outside = {"clip_to_range": False, "sentinel": OUTSIDE} if column["nullable"] else {}
    kind = "int" if column["kind"] == "integer" else "float"
    return domain.NumericalAttribute(column["min"], column["max"], dtype=kind, interval_handling="sample", **outside)


def main() -> None:
    """Write a table for every epsilon and seed, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--mechanism", default="mst", choices=["mst", "aim"])
    asked = parser.parse_args()
    vectorized_transformations.undiscretize = undiscretize
    about = json.loads((asked.folder / "households.json").read_text(encoding="utf-8"))
    rows, columns, constant = pd.read_parquet(asked.folder / "households.parquet"), about["columns"], about["constant"]
    for name in [n for n, c in columns.items() if c["kind"] == "categorical"]:
        rows[name] = rows[name].astype(object).where(rows[name].notna(), MISSING)
    key, own = about["key"], [n for n in columns if n not in constant]
    tables = {
        "household": rows.groupby(key, sort=False)[constant].first().reset_index(),
        "individual": rows[[key, *own]],
    }
    mst = asked.mechanism == "mst"
    config = MultiTableConfig(
        domains={
            "household": {n: describe(columns[n]) for n in constant},
            "individual": {n: describe(columns[n]) for n in own},
        },
        foreign_keys=[ForeignKeyRelation("household", key, "individual", key, about["most"])],
        discrete_mechanism=discrete_mechanisms.MSTConfig(pgm_iters=100) if mst else discrete_mechanisms.AIMConfig(),
        num_permutation_slots=3 if mst else 2,
        exploration_strategy="size_sliced" if mst else "empty_token",
    )
    for epsilon in asked.epsilons:
        mechanism = config.configure(zcdp_rho=about["rho"][f"{epsilon:g}"], delta=about["delta"])
        for seed in range(asked.seeds):
            before = resource.getrusage(resource.RUSAGE_SELF)
            found = dict(mechanism(rng=np.random.default_rng(seed), data=tables).synthetic_tables)
            used = resource.getrusage(resource.RUSAGE_SELF)
            made = found["individual"].merge(found["household"], on=key)
            for name, column in columns.items():
                null = MISSING if column["kind"] == "categorical" else OUTSIDE
                made[name] = made[name].astype(object).where(made[name] != null, None)
                if column["kind"] != "categorical":
                    made[name] = made[name].astype(float)
            made[[key, *columns]].to_parquet(asked.folder / f"made-{asked.mechanism}-{epsilon:g}-{seed}.parquet")
            seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"{asked.mechanism} {epsilon:g} {seed}: {seconds:.0f} CPU seconds, {used.ru_maxrss / 1e6:.1f} GB",
                flush=True,
            )


if __name__ == "__main__":
    main()

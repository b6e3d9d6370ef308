"""Households beside other ways: ``python -m benchmarks.households [--epsilons ..] [--seeds N] [--ways ..]``.

``--hand-over FOLDER`` writes the table for ``dpsynth_households.py``; ``--made FOLDER`` scores what that left there.

``linked``: a release of households.  ``ruled``: the same with rules across members.  ``unlinked``: the same columns in
a release of single persons, every kept row counted, and the rows put together at random into households of the real
sizes.  ``sample``: a random tenth of the households, as they are, which is not private.  The table is public and the
noise is seeded: nothing here is a release.  Roles are made of ages and places in the household: head, second adult,
child (under 18), other.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.panels import print_means, synthesize, widen
from benchmarks.tables import FOLDER
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.coded_tables import encode_table
from privsyn.evaluation.linked_figures import list_household_figures, read_panel_table, share_broken
from privsyn.tasks.codecs import plan_every_column
from privsyn.tasks.metrics.marginal_distance import average_l1, list_all_cliques
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho

ROLES = ["head", "second", "child", "other"]
CONSTANT = ("db040", "hy040n", "hy050n", "eqIncome")
COLUMNS = ("db030", "role", "age", "rb090", "pl030", "pb220a", "py010n", "py090n", "py100n", *CONSTANT)
MOST, DELTA = 9, 1e-9
RULES = [{"never": "role == 'child' and age >= 18"}, {"never": "role != 'child' and age < 18"}]
ACROSS = [{"never": "count(role == 'head') != 1"}, {"never": "role == 'child' and age >= head.age - 14"}]
"""Rules across members, which hold by what roles are made of, but for some parents below 15 years older."""

SAMPLE = 0.1


def load() -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the rows with roles, and the columns as a spec has them."""
    rows = pd.read_parquet(Path(FOLDER) / "eusilc.parquet")
    described = json.loads((Path(FOLDER) / "eusilc.json").read_text(encoding="utf-8"))["columns"]
    adult = rows["age"] >= 18
    number = rows[adult].groupby("db030").cumcount()
    rows["role"] = "child"
    rows.loc[adult, "role"] = np.select([number == 0, number == 1], ROLES[:2], "other")
    columns: dict[str, Any] = {
        "db030": {"kind": "drop"},
        "role": {"kind": "categorical", "values": ROLES, "unlisted": "other"},
    }
    for name in COLUMNS[2:]:
        known = described[name]
        nullable = known["missing"] > 0
        if known["kind"] == "categorical":
            columns[name] = {"kind": "categorical", "values": known["values"], "nullable": nullable}
        else:
            kind = "integer" if known["integer"] else "number"
            columns[name] = {"kind": kind, "min": known["min"], "max": known["max"], "nullable": nullable}
    return rows[list(COLUMNS)], columns


def build_spec(columns: dict[str, Any], epsilon: float, seed: int, **changes: Any) -> ReleaseSpec:
    """Return the request of the release of households, or another's."""
    content: dict[str, Any] = {
        "dataset": "eusilc",
        "unit": {"household_id": "db030", "max_records": MOST},
        "order": "role",
        "once": ROLES[:2],
        "constant": CONSTANT,
        "rules": RULES,
        "privacy": {"epsilon": epsilon, "delta": DELTA},
        "budget": {"epsilon": 100.0, "delta": 1e-6},
        "columns": columns,
        "mechanism": {"name": "privsyn", "synthesis": {"seed": seed}},
    }
    return ReleaseSpec.model_validate({**content, **changes})


def make_linked(rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return households."""
    return synthesize(rows, build_spec(columns, epsilon, seed), seed, 2)


def make_ruled(rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return households that keep the rules across members."""
    return synthesize(rows, build_spec(columns, epsilon, seed, rules=[*RULES, *ACROSS]), seed, 2)


def make_unlinked(rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return rows of single persons, as households of the real sizes."""
    unit = {"person_id": "db030", "max_records": MOST}
    spec = build_spec(columns, epsilon, seed, unit=unit, order=None, once=[], constant=[])
    made = synthesize(rows, spec, seed, 2)
    sizes = rows.groupby("db030").size().sample(frac=2.0, replace=True, random_state=seed).to_numpy()
    made.insert(0, "db030", np.repeat(np.arange(len(sizes)), sizes)[: len(made)])
    return made


def make_sample(rows: pd.DataFrame, columns: dict[str, Any], epsilon: float, seed: int) -> pd.DataFrame:
    """Return a random tenth of the households."""
    households = pd.Series(rows["db030"].unique()).sample(frac=SAMPLE, random_state=seed)
    return rows[rows["db030"].isin(households)]


MAKE = {"linked": make_linked, "ruled": make_ruled, "unlinked": make_unlinked, "sample": make_sample}


def score(rows: pd.DataFrame, made: pd.DataFrame, columns: dict[str, Any]) -> dict[str, float]:
    """Return how far the made rows are from the real ones: single rows, and households."""
    spec = build_spec(columns, 1.0, 0).without_ladder()
    encoding = plan_every_column(spec)
    tables, coded = [], []
    for table in (rows, made):
        batches = pa.Table.from_pandas(table, preserve_index=False).to_batches()
        coded.append(encode_table(batches, encoding).bins)
        tables.append(read_panel_table(batches, encoding, spec))
    found = {(f.name, f.column): f for f in list_household_figures(tables[0], tables[1], spec, ROLES)}
    couples, children = found["correlation of head and second", "age"], found["correlation of head and child", "age"]
    differences = found["head less second, on average", "age"], found["head less child, on average", "age"]
    gini = found["Gini coefficient over households", "eqIncome"]
    sexes = found["head by second, and the share alike", "rb090"]
    ruled = build_spec(columns, 1.0, 0, rules=[*RULES, *ACROSS])
    table = pa.Table.from_pandas(made, preserve_index=False)
    no_head, old_child = share_broken(table.to_batches(), plan_every_column(ruled), ruled)
    return {
        "one column": average_l1(*coded, list_all_cliques(coded[0].domain, 1)),
        "two columns": average_l1(*coded, list_all_cliques(coded[0].domain, 2)),
        "members": found["members per household", ""].distance or 0.0,
        "members by role": found["members by role", ""].distance or 0.0,
        "sexes of couples": sexes.distance or 0.0,
        **{
            f"{name} ({of:.2f})": figure.synthetic if figure.synthetic is not None else np.nan
            for name, figure in (
                ("ages of couples, correlation", couples),
                ("ages of couples, difference", differences[0]),
                ("head and child, correlation", children),
                ("head and child, difference", differences[1]),
                ("Gini of incomes", gini),
            )
            for of in [figure.real or 0.0]
        },
        "households": made["db030"].nunique() / rows["db030"].nunique(),
        "members without one head": no_head,
        "children too old for the head": old_child,
    }


def hand_over(folder: Path, rows: pd.DataFrame, columns: dict[str, Any], epsilons: list[float]) -> None:
    """Write what another program needs to make such households: rows, columns and the budget."""
    folder.mkdir(parents=True, exist_ok=True)
    rows.to_parquet(folder / "households.parquet")
    rho = {f"{e:g}": float(convert_epsilon_to_rho(e, DELTA)) for e in epsilons}
    used = {name: {"nullable": False, **column} for name, column in columns.items() if column["kind"] != "drop"}
    about = {"key": "db030", "most": MOST, "constant": CONSTANT, "columns": used, "rho": rho, "delta": DELTA}
    (folder / "households.json").write_text(json.dumps(about), encoding="utf-8")


def main() -> None:
    """Print a row for every epsilon and way: means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.2, 1.0])
    parser.add_argument("--ways", nargs="+", default=list(MAKE), choices=list(MAKE))
    parser.add_argument("--widths", nargs="+", type=float, default=[1.0], help="how many times as wide bounds are")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--hand-over", type=Path, metavar="FOLDER", help="write the table, and nothing else")
    parser.add_argument(
        "--made", type=Path, metavar="FOLDER", help="score the tables of this folder in place of --ways"
    )
    parser.add_argument("--made-by", default="mst", choices=["mst", "aim"], help="the mechanism of --made")
    asked = parser.parse_args()
    rows, columns = load()
    if asked.hand_over:
        hand_over(asked.hand_over, rows, columns, asked.epsilons)
        return

    def measure(epsilon: float, width: float, way: str, seed: int) -> dict[str, float]:
        if asked.made:
            made = pd.read_parquet(asked.made / f"made-{asked.made_by}-{epsilon:g}-{seed}.parquet")
        else:
            made = MAKE[way](rows, widen(columns, width, []), epsilon, seed)
        return score(rows, made, columns)

    asked_for = product(asked.epsilons, asked.widths, ["dpsynth"] if asked.made else asked.ways)
    measured = (
        ({"epsilon": f"{e:g}", "bounds": f"x{w:g}", "way": way}, partial(measure, e, w, way)) for e, w, way in asked_for
    )
    print_means(measured, asked.seeds)


if __name__ == "__main__":
    main()

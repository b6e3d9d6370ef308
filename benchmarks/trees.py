"""Trees of tables beside tables on their own: ``python -m benchmarks.trees [--epsilons ..] [--seeds N] [--ways ..]``.

Households, their members (eusilc) and, three levels deep, a MADE-UP table of visits of members: their number follows
from age, and what they are for from sex and age.  ``tree``: a release of the three tables.  ``apart``: the same rows,
each put below a row above that is drawn at random, as of tables that are released on their own.  ``sample``: a random
tenth of the households as they are, which is not private.  What is made up is seeded, and so is the noise: nothing here
is a release.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks import households
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.evaluation.linked_figures import list_table_pair_figures, read_panel_table
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.table_pairs import name_step
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs import plan_every_column

Tables = dict[str, pd.DataFrame]
KEYS = {"households": "db030", "members": "member"}
MOST_VISITS = 6
VISITS = {
    "month": {"kind": "integer", "min": 1, "max": 12},
    "ward": {"kind": "categorical", "values": ["general", "birth", "heart", "injury"]},
    "nights": {"kind": "integer", "min": 0, "max": 30},
}
"""The columns of the made-up table."""


def load() -> tuple[Tables, dict[str, Any]]:
    """Return the tables, and the columns of the first two as a spec has them."""
    rows, columns = households.load()
    rows = rows.sort_values("db030", kind="stable").reset_index(drop=True)
    rows["member"] = np.arange(len(rows))
    above = rows.drop_duplicates("db030")[["db030", *households.CONSTANT]].reset_index(drop=True)
    members = rows.drop(columns=[*households.CONSTANT])
    return {"households": above, "members": members, "visits": make_up_visits(members)}, columns


def make_up_visits(members: pd.DataFrame) -> pd.DataFrame:
    """Return visits: the older a member, the more; births are of women, injuries of the young; nights grow with age."""
    rng = np.random.default_rng(0)
    age, woman = members["age"].to_numpy(), (members["rb090"].astype(str) == "female").to_numpy()
    number = np.minimum(rng.poisson(0.15 + 0.02 * age), MOST_VISITS)
    place = np.repeat(np.arange(len(members)), number)
    old, female = age[place], woman[place]
    ward = np.full(len(place), "general", dtype=object)
    draw = rng.random(len(place))
    ward[(old > 55) & (draw < 0.5)] = "heart"
    ward[(old < 30) & (draw < 0.5)] = "injury"
    ward[female & (old > 18) & (old < 45) & (draw < 0.6)] = "birth"
    nights = np.minimum(rng.poisson(0.5 + old / 20 + 3.0 * (ward == "heart")), 30)
    visits = {"member": members["member"].to_numpy()[place], "month": rng.integers(1, 13, len(place))}
    return pd.DataFrame({**visits, "ward": ward, "nights": nights})


def build_spec(columns: dict[str, Any], epsilon: float, seed: int) -> ReleaseSpec:
    """Return the request of a tree."""
    of_members = {name: columns[name] for name in households.COLUMNS[1:] if name not in households.CONSTANT}
    above = {name: columns[name] for name in households.CONSTANT}
    rows = {"of": "households", "key": "member", "order": "role", "max": households.MOST, "once": households.ROLES[:2]}
    return ReleaseSpec.model_validate(
        {
            "dataset": "eusilc",
            "unit": {"household_id": "db030"},
            "rules": households.RULES,
            "tables": {
                "households": {"key": "db030", "columns": above},
                "members": {**rows, "columns": of_members},
                "visits": {"of": "members", "order": "month", "max": MOST_VISITS, "columns": VISITS},
            },
            "privacy": {"epsilon": epsilon, "delta": 1e-9},
            "budget": {"epsilon": 100.0, "delta": 1e-6},
            "mechanism": {"name": "privsyn", "synthesis": {"seed": seed}},
        }
    )


def make_tree(tables: Tables, spec: ReleaseSpec, seed: int) -> Tables:
    """Return the tables of a tree, with seeded noise."""
    source = open_source({n: pa.Table.from_pandas(t, preserve_index=False) for n, t in tables.items()}, spec)
    order = tuple(name for name in source.columns if name in spec.released_columns)
    request = Request(spec, order, 2)
    further = {name: of_table.batches for name, of_table in source.further_tables.items()}
    private = PrivateAccess(source.batches, further_tables=further)
    made = MemoryRun(request, build_steps(request), draw_from_seed(seed), private).run()
    members = made["decode"]["synthetic"].to_pandas()
    members["member"] = np.arange(1, len(members) + 1)
    visits = made[name_step("visits", "decode")]["synthetic"].to_pandas()
    above = members.drop_duplicates("db030")[["db030", *households.CONSTANT]]
    return {"households": above, "members": members.drop(columns=[*households.CONSTANT]), "visits": visits}


def put_apart(tables: Tables, seed: int) -> Tables:
    """Return the tables with every row below another row above, drawn at random, groups of rows as they are."""
    rng, found = np.random.default_rng(seed), dict(tables)
    for above, below in (("households", "members"), ("members", "visits")):
        key = KEYS[above]
        old = tables[above][key].to_numpy()
        new = dict(zip(old, rng.permutation(old), strict=True))
        found[below] = tables[below].assign(**{key: tables[below][key].map(new)})
    return found


def take_sample(tables: Tables, seed: int) -> Tables:
    """Return a random tenth of the households with all rows below them."""
    above = tables["households"].sample(frac=households.SAMPLE, random_state=seed)
    members = tables["members"][tables["members"]["db030"].isin(above["db030"])]
    visits = tables["visits"][tables["visits"]["member"].isin(members["member"])]
    return {"households": above, "members": members, "visits": visits}


_made: dict[tuple[float, int], Tables] = {}


def make_once(tables: Tables, spec: ReleaseSpec, seed: int) -> Tables:
    """Return the tables of a tree, made when they are first asked for."""
    key = spec.privacy.epsilon, seed
    if key not in _made:
        _made[key] = make_tree(tables, spec, seed)
    return _made[key]


MAKE: dict[str, Callable[[Tables, ReleaseSpec, int], Tables]] = {
    "tree": make_once,
    "apart": lambda tables, spec, seed: put_apart(make_once(tables, spec, seed), seed),
    "sample": lambda tables, spec, seed: take_sample(tables, seed),
}


def score(real: Tables, made: Tables, spec: ReleaseSpec) -> dict[str, float]:
    """Return how far the made rows below are from the real ones, given the rows above, at depth two and three."""
    found = {}
    for above, below, depth in (("households", "members", "two"), ("members", "visits", "three")):
        pair_spec = spec.table_pairs[below]
        if depth == "two":  # figures of rows below one row above, whatever the order of these
            unit = {"person_id": "db030", "max_records": households.MOST}
            changes = {
                "order": "age",
                "once": (),
                "unit": pair_spec.unit.model_copy(update=unit | {"household_id": None}),
            }
            pair_spec = pair_spec.model_copy(update=changes)
        encoding, key = plan_every_column(pair_spec), KEYS[above]
        tables = []
        for each in (real, made):
            rows = each[below].merge(each[above], on=key)
            if below == "visits":
                rows = rows.merge(each["households"], on="db030")
            batches = pa.Table.from_pandas(rows, preserve_index=False).to_batches()
            tables.append(read_panel_table(batches, encoding, pair_spec, pd.factorize(rows[key])[0].astype(np.int64)))
        sizes = len(real[above]), len(made[above])
        kept, apart = [], []
        for figure in list_table_pair_figures((tables[0], tables[1]), sizes, pair_spec, below, above):
            if figure.name.startswith(f"{below}: rows per row"):
                found[f"{depth}: number of rows, L1"] = figure.distance or 0.0
            elif "Cramer's V" in figure.name and figure.real and figure.real >= 0.1:
                kept.append((figure.synthetic or 0.0) / figure.real)
                apart.append(figure.distance or 0.0)
        found[f"{depth}: relation with above kept"] = float(np.median(kept))
        found[f"{depth}: the least"] = min(kept)
        found[f"{depth}: its joint counts, L1"] = float(np.mean(apart))
    return found


def main() -> None:
    """Print a row for every epsilon and way: means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0])
    parser.add_argument("--ways", nargs="+", default=list(MAKE), choices=list(MAKE))
    parser.add_argument("--seeds", type=int, default=4)
    asked = parser.parse_args()
    tables, columns = load()
    head: list[str] = []
    for epsilon in asked.epsilons:
        for way in asked.ways:
            start, found = time.process_time(), []
            for seed in range(asked.seeds):
                spec = build_spec(columns, epsilon, seed)
                found.append(score(tables, MAKE[way](tables, spec, seed), spec))
            seconds = (time.process_time() - start) / asked.seeds
            if not head:
                head = list(found[0])
                print("| epsilon | way | " + " | ".join(head) + " | CPU seconds |")
                print("|---|---|" + "---|" * (len(head) + 1))
            means = " | ".join(f"{np.nanmean([f[key] for f in found]):.3f}" for key in head)
            print(f"| {epsilon:g} | {way} | {means} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()

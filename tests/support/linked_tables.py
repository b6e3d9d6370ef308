"""Small pairs of tables that several tests use: persons and their yearly rows, households and their members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.households import HOUSEHOLD_COLUMNS, ROLES, make_households
from tests.support.panels import PANEL_COLUMNS, make_panel
from tests.support.specs import make_spec

Tables = dict[str, pa.Table]


def describe_columns(*names: str, columns: dict[str, Any] = PANEL_COLUMNS) -> dict[str, Any]:
    """These columns as a spec has them."""
    return {name: columns[name] for name in names}


def make_visits(persons: int, seed: int = 0, without: float = 0.3, most: int = 7) -> Tables:
    """Persons, of whom women mostly have rows and a share ``without`` of all have none, and their rows."""
    panel = make_panel(persons, seed, most)
    first = panel.to_pandas().drop_duplicates("pid")[["pid", "sex"]].sort_values("pid").reset_index(drop=True)
    rng = np.random.default_rng(seed + 1)
    none = rng.random(persons) < np.where(first["sex"] == "f", 0.5, 1.5) * without
    kept = pc.is_in(panel["pid"], value_set=pa.array(first["pid"][~none]))
    rows = panel.filter(kept).drop_columns(["sex"])
    rows = rows.append_column("visit", pa.array([f"v{i}" for i in range(rows.num_rows)]))
    return {"persons": pa.Table.from_pandas(first, preserve_index=False), "visits": rows}


def make_visits_content(**changes: Any) -> dict[str, Any]:
    """The tables of :func:`make_visits` as a spec has them; keyword arguments change the one of rows."""
    rows = {"of": "persons", "key": "visit", "order": "year", "max": 5, "with_order": ["age"]}
    columns = describe_columns("year", "age", "income", "job")
    return {
        "persons": {"key": "pid", "columns": describe_columns("sex")},
        "visits": {**rows, "columns": columns, **changes},
    }


def make_tree(persons: int, seed: int = 0) -> Tables:
    """The tables of :func:`make_visits`, drugs of visits, of which those of workers have more, and purchases."""
    tables, rng = make_visits(persons, seed), np.random.default_rng(seed + 2)
    visits = tables["visits"].to_pandas()
    works = (visits["job"] == "full").to_numpy()
    many = np.minimum(rng.poisson(np.where(works, 2.5, 0.8)), 6)
    drugs = visits.loc[visits.index.repeat(many), ["visit", "job"]].reset_index(drop=True)
    drugs["day"] = np.sort(rng.integers(0, 31, len(drugs)))
    drugs["drug"] = [f"d{i}" for i in range(len(drugs))]
    drugs["dose"] = np.where(
        rng.random(len(drugs)) < 0.85, (drugs["job"] == "full") + 0, rng.integers(0, 3, len(drugs))
    )
    drugs = drugs.drop(columns="job")
    above = tables["persons"].to_pandas()
    buys = above.loc[above.index.repeat(rng.integers(0, 4, len(above))), ["pid", "sex"]].reset_index(drop=True)
    buys["week"] = rng.integers(1, 53, len(buys))
    buys["online"] = (rng.random(len(buys)) < np.where(buys["sex"] == "f", 0.9, 0.1)) + 0
    buys = buys.drop(columns="sex")
    return tables | {n: pa.Table.from_pandas(t, preserve_index=False) for n, t in (("drugs", drugs), ("buys", buys))}


def make_tree_content(**changes: Any) -> dict[str, Any]:
    """The tables of :func:`make_tree` as a spec has them; keyword arguments change the one of drugs."""
    drugs = {"day": {"kind": "integer", "min": 0, "max": 30}, "dose": {"kind": "integer", "min": 0, "max": 2}}
    buys = {"week": {"kind": "integer", "min": 1, "max": 52}, "online": {"kind": "integer", "min": 0, "max": 1}}
    return {
        **make_visits_content(),
        "drugs": {"of": "visits", "key": "drug", "order": "day", "max": 4, "columns": drugs, **changes},
        "buys": {"of": "persons", "order": "week", "max": 3, "columns": buys},
    }


def make_members(households: int, seed: int = 0) -> Tables:
    """Households, a tenth of which nobody lives in, and their members."""
    members = make_households(households, seed)
    rows = members.to_pandas()
    first = rows.drop_duplicates("hid")[["hid", "region"]].reset_index(drop=True)
    empty = np.random.default_rng(seed + 1).random(households) < 0.1
    rows = rows[~rows["hid"].isin(first["hid"][empty])].drop(columns="region").reset_index(drop=True)
    rows["pid"] = [f"m{i}" for i in range(len(rows))]
    return {name: pa.Table.from_pandas(t, preserve_index=False) for name, t in (("homes", first), ("members", rows))}


def make_members_content(**changes: Any) -> dict[str, Any]:
    """The tables of :func:`make_members` as a spec has them; keyword arguments change the one of members."""
    rows = {"of": "homes", "key": "pid", "order": "role", "max": 5, "once": ROLES[:2]}
    columns = describe_columns("role", "age", "sex", "income", columns=HOUSEHOLD_COLUMNS)
    above = describe_columns("region", columns=HOUSEHOLD_COLUMNS)
    return {"homes": {"key": "hid", "columns": above}, "members": {**rows, "columns": columns, **changes}}


def make_tables_spec(content: dict[str, Any], **changes: Any) -> ReleaseSpec:
    """The spec of two tables; keyword arguments replace top-level fields."""
    key = next(table["key"] for table in content.values() if "of" not in table)
    unit = {"household_id" if key == "hid" else "person_id": key}
    return make_spec({}, **{"data": "", "unit": unit, "tables": content, **changes})


def save_tables(folder: Path, tables: Tables, content: dict[str, Any]) -> dict[str, Any]:
    """The content of a spec's ``tables`` with the places of these, which are saved in ``folder``."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return {name: {**table, "data": str(folder / f"{name}.parquet")} for name, table in content.items()}

"""The public tables that accuracy is measured on: one spec each, by one rule, from the table's own dictionary.

The tables lie beside the project where they are present (NAME.parquet with NAME.json: kind, bounds and values of
every column); nothing needs them.

The rule: a categorical column with at most MAX_VALUES listed values keeps them (numbers and text alike as listed); one
with more is dropped.  A numeric column has its listed bounds and BINS bins, or one bin a value if it has at most 64
whole values; a column with one value only is dropped.  Null is a value of its own where the dictionary counts any.
A column whose values are lower edges of public bins is cut at as many bins all the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from privsyn.data_contracts.columns import DropColumn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import list_computed_columns

FOLDER = Path(__file__).parents[2] / "shared" / "data"
MAX_VALUES = 300
BINS = 32
LABELS = {
    "adult": "income",
    "census_income": "income",
    "national2019": "MSP",
    "fire2016": "Final Priority",
    "stroke_ist": "SEX",
    "gss_happiness": "happy",
    "support2": "event",
    "social_diagnosis2011": "sex",
    "loans": "homeownership",
}
"""Table -> the column that models predict."""


HELD_OUT = frozenset({"loans"})
"""Tables that take no part in choosing defaults: measured once something is chosen."""


def available() -> list[str]:
    """Return the tables that are present, but those held out."""
    return keep_present(n for n in LABELS if n not in HELD_OUT)


def keep_present(names: Iterable[str], suffix: str = "") -> list[str]:
    """Return the names whose table is present; name the others on stderr, so that no figure is short of one unseen.

    ``suffix``: what a name may have behind the table's.
    """
    names = list(names)
    missing = [n for n in names if not (FOLDER / f"{n.removesuffix(suffix)}.parquet").is_file()]
    if missing:
        print(f"Left out, not in {FOLDER.name}: {', '.join(missing)}", file=sys.stderr)
    return [n for n in names if n not in missing]


def table_spec(name: str, epsilon: float = 1.0, delta: float = 1e-9) -> ReleaseSpec:
    """Return the spec of a table by the rule; OSError where the table is not present."""
    dictionary = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    listed = dictionary["columns"]
    described = listed if isinstance(listed, dict) else {c["name"]: c for c in listed}
    return ReleaseSpec.model_validate(
        {
            "dataset": name,
            "data": str(FOLDER / f"{name}.parquet"),
            "unit": {"records_per_person": 1},
            "privacy": {"epsilon": epsilon, "delta": delta},
            "budget": {"epsilon": 1000.0, "delta": delta},
            "columns": {column: _column(content) for column, content in described.items()},
        }
    )


def measured_only(spec: ReleaseSpec) -> ReleaseSpec:
    """Return the spec without rules and without the columns that they compute.

    What methods that know no rules are given.
    """
    drop = DropColumn(kind="drop")
    columns = {name: drop if name in list_computed_columns(spec.rules) else c for name, c in spec.columns.items()}
    return spec.model_copy(update={"columns": columns, "rules": ()})


def _column(content: dict[str, Any]) -> dict[str, Any]:
    nullable = bool(content.get("missing"))
    if content["kind"] == "categorical":
        values = content["values"]
        if not 2 - nullable <= len(values) <= MAX_VALUES:
            return {"kind": "drop"}
        return {"kind": "categorical", "values": values, "nullable": nullable, "unlisted": "other"}
    if content["kind"] != "numeric" or content["min"] >= content["max"]:
        return {"kind": "drop"}
    kind = "integer" if content.get("integer") else "number"
    found = {"kind": kind, "min": content["min"], "max": content["max"], "nullable": nullable}
    whole = kind == "integer" and content["max"] - content["min"] < 64
    return found if whole else {**found, "bins": BINS}

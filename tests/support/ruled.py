"""A table of people with rules between its columns, and random conditions over it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.specs import make_spec

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 0, "max": 90, "bins": 9},
    "educ": {"kind": "integer", "min": 0, "max": 20},
    "exper": {"kind": "integer", "min": 0, "max": 90},
    "wage": {"kind": "number", "min": 0, "max": 100_000, "bins": 10, "nullable": True, "decimals": 2},
    "hired": {"kind": "datetime", "min": "1950-01-01", "max": "2020-01-01", "type": "date", "nullable": True},
    "marital": {"kind": "categorical", "values": ["never married", "married", "widowed"], "unlisted": "null"},
    "east": {"kind": "boolean"},
    "north": {"kind": "integer", "min": 0, "max": 1},
}
RULES: list[dict[str, Any]] = [
    {"derive": {"exper": "age - educ - 6"}},
    {"never": "age < 15 and (wage is not null or marital != 'never married')"},
    {"never": "wage > 5000 and marital in ['widowed']"},
    {"never": "year(hired) < 2000 and age < 35"},
    {"one_of": ["east", "north"]},
]


def ruled_spec(rules: list[dict[str, Any]] | None = None, **changes: Any) -> ReleaseSpec:
    """The spec of these columns, with RULES or with others."""
    return make_spec(COLUMNS, rules=RULES if rules is None else rules, **changes)


def people(rows: int, seed: int) -> pd.DataFrame:
    """Rows of which some break a rule: private rows are what they are."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 91, rows)
    educ = np.clip(rng.normal(12, 3, rows), 0, 20).astype(int)
    wage = np.where(age < 14, np.nan, np.round(rng.exponential(3000, rows), 2))
    hired = pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 25_000, rows), "D")
    east = rng.random(rows) < 0.3
    return pd.DataFrame(
        {
            "age": age,
            "educ": educ,
            "exper": np.maximum(age - educ - 6, 0),
            "wage": wage,
            "hired": hired,
            "marital": np.where(age < 15, "never married", rng.choice(COLUMNS["marital"]["values"], rows)),
            "east": east,
            "north": (~east).astype(int),
        }
    )


_NUMBERS = st.sampled_from(["age", "educ", "wage", "(age - educ)", "abs(educ - 10)", "(age * 2 + 1)", "(age % 7)"])
_NUMBERS |= st.sampled_from(["min(age, educ)", "max(wage, 100)", "floor(wage / 10)", "(wage / (educ - 5))", "-age"])
_SIGNS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
_VALUES = st.integers(-20, 100).map(str) | _NUMBERS
_TEXTS = st.sampled_from(["'married'", "'widowed'", "'never married'"])
_COMPARISONS = st.tuples(_NUMBERS, _SIGNS, _VALUES).map(" ".join)
_COMPARISONS |= st.tuples(st.just("marital"), st.sampled_from(["==", "!="]), _TEXTS).map(" ".join)
_COMPARISONS |= st.sampled_from(["wage is null", "wage is not null", "marital is null"])
_COMPARISONS |= st.sampled_from(["marital in ('married', 'widowed')"])
_COMPARISONS |= st.sampled_from(["age in (1, 20, 33)", "educ not in (10, 11)", "not (age < 40)"])
CONDITIONS = st.recursive(
    _COMPARISONS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})")
        | inner.map(lambda c: f"not ({c})")
    ),
    max_leaves=5,
)
"""Conditions that Python's spelling and SQL's share."""

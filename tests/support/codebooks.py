"""A made-up Stata file with labels, and small codebooks as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

YES_NO = {1: "yes", 2: "no"}
AGREE = {1: "agree strongly", 2: "agree", 3: "neither", 4: "disagree", 5: "disagree strongly"}
LISTS: dict[str, tuple[str, dict[int, str]]] = {
    "sex": ("Sex of respondent", {1: "male", 2: "female"}),
    "region": ("Region of interview", {1: "north", 2: "east", 3: "south", 4: "west"}),
    "marital": ("Marital status", {1: "married", 2: "widowed", 3: "divorced", 4: "separated", 5: "never married"}),
    "degree": ("Highest degree", {0: "none", 1: "school", 2: "college", 3: "bachelor", 4: "graduate"}),
    "party": ("Party", {0: "left", 1: "leaning left", 2: "centre", 3: "leaning right", 4: "right", 7: "other"}),
    "health": ("Condition of health", {1: "excellent", 2: "good", 3: "fair", 4: "poor"}),
    "happy": ("General happiness", {1: "very happy", 2: "pretty happy", 3: "not too happy"}),
    "work": ("Labour force status", {1: "full time", 2: "part time", 3: "unemployed", 4: "retired", 5: "school"}),
    **{f"own{i}": (f"Household owns item {i}", YES_NO) for i in range(1, 6)},
    **{f"q{i}": (f"Opinion on statement {i}", AGREE) for i in range(1, 9)},
}
NUMBERS = {
    "age": "Age of respondent (18-99)",
    "educ": "Years of schooling [0 to 25]",
    "hours": "Hours worked last week (0 - 112 hours)",
    "children": "Number of children (0-8)",
    "siblings": "Number of brothers and sisters (0..40)",
    "income": "Family income, thousands (0.0-999.9)",
    "weight": "Body weight, kg (30.0-250.0)",
    "rooms": "Rooms in the dwelling (1-20)",
    "year": "Year of interview (1972-2030)",
}


def write_stata(path: Path) -> list[str]:
    """A Stata file of 30 variables with variable and value labels, and two rows; returns the variables' names."""
    import pyreadstat

    columns: dict[str, Any] = {name: [1, 2] for name in LISTS}
    columns |= {name: [30.5, 40.5] if name in ("income", "weight") else [30, 40] for name in NUMBERS}
    frame = pd.DataFrame(columns)
    labels = {name: label for name, (label, _) in LISTS.items()} | NUMBERS
    pyreadstat.write_dta(
        frame,
        str(path),
        column_labels=labels,
        variable_value_labels={name: values for name, (_, values) in LISTS.items()},
    )
    return list(columns)


SHEET = """\
Variable,Label,Type,Min,Max,Values,Required,Unit
pid,Person,identifier,,,,yes,
age,Age,integer,0,110,,yes,years
grade,Grade,,,,1-6,,
wage,Wage,number,0,9999.5,,no,EUR
sex,Sex,,,,1 = male; 2 = female,yes,
region,Region,text,,,"north, south, east",yes,
zip,Code,text,,,"01000|02000",,
smokes,Smokes,yes/no,,,,,
born,Born,boolean,,,,,
seen,Day of visit,date,,,,,
"""
LONG_SHEET = """\
name\tlabel\tvalue\tvalue label
sex\tSex\t1\tmale
\t\t2\tfemale
age\tAge (18-89)\t\t
state\tState\tNY\tNew York
\t\tMA\tMassachusetts
"""

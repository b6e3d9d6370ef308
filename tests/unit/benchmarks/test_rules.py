"""The rules of examples/rules: each names its source, fits its table's columns, and is in the example specs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from benchmarks.compare_store import Run, Store
from benchmarks.rules import FILES, RULES, WITH, WITHOUT, broken_share, markdown, ruled_specs, rules_of
from benchmarks.tables import FOLDER
from privsyn.data_contracts.rules import Rule
from privsyn.specs.spec_file import load_spec
from privsyn.tasks.codecs import plan
from privsyn.tasks.rules.repair import find_valid_row

each = pytest.mark.parametrize("name", FILES)


def needs(name: str) -> None:
    if not (FOLDER / f"{name}.parquet").is_file():
        pytest.skip("the shared table is not here")


@each
def test_every_rule_names_its_source(name: str) -> None:
    lines = (RULES / FILES[name]).read_text(encoding="utf-8").splitlines()
    rules = [i for i, line in enumerate(lines) if line.startswith("  - ")]
    assert len(rules) == len(rules_of(name))
    for i in rules:
        before = i - 1
        while lines[before].startswith("  # ") and not re.match(r"  # [A-Z][\w ,.-]*: ", lines[before]):
            before -= 1  # a comment of several lines
        assert re.match(r"  # [A-Z][\w ,.-]*: ", lines[before]), lines[i]


@each
def test_rules_fit_the_columns_of_their_table(name: str) -> None:
    needs(name)
    specs = ruled_specs(name)
    assert list(specs[WITH].released_columns) == list(specs[WITHOUT].released_columns)
    assert len(specs[WITH].rules) == len(rules_of(name)) and not specs[WITHOUT].rules
    assert find_valid_row(plan(specs[WITH])) is not None


@pytest.mark.parametrize(("example", "name"), [("adult", "adult"), ("gss", "gss_happiness")])
def test_the_example_specs_have_the_same_rules(example: str, name: str) -> None:
    """All but those that speak of a column that the example drops."""
    spec = load_spec(RULES.parent / f"{example}.yaml")
    own = list(spec.rules)
    whole = TypeAdapter(list[Rule]).validate_python(rules_of(name))
    dropped = [column for column, how in spec.columns.items() if how.kind == "drop"]
    assert own
    assert own == [rule for rule in whole if not any(column in str(rule) for column in dropped)]


def test_rows_that_break_a_rule_are_counted() -> None:
    needs("adult")
    spec = ruled_specs("adult")[WITH]
    encoding = plan(spec)
    ruled_columns = find_valid_row(encoding)
    assert ruled_columns is not None
    others = encoding.decode(
        {c.attribute: np.zeros(1, dtype=np.int64) for c in encoding.codecs}, np.random.default_rng(0)
    )
    row = {**others, **ruled_columns}
    fine = pa.RecordBatch.from_pydict({n: row[n] for n in spec.released_columns})
    place = fine.schema.get_field_index("education-num")
    known = fine.column("education-num")
    wrong = fine.set_column(place, "education-num", pa.array([8 if known[0].as_py() == 7 else 7], known.type))
    assert broken_share([fine], spec) == 0
    assert broken_share([wrong, fine, fine, fine], spec) == 0.25


def test_the_table_shows_means_and_ratios(tmp_path: Path) -> None:
    needs("adult")
    store = Store(tmp_path / "runs.jsonl")
    for method, factor in ((WITHOUT, 1.0), (WITH, 0.5)):
        for seed in (0, 1):
            figures = {"broken": 0.25 if method == WITHOUT else 0.0, "l1_2way": 0.1 * factor, "l1_3way": 0.2}
            store.add(Run(method, "1", "adult", 1.0, seed, "done", figures, 1.0, 2.0 + np.sign(1 - factor)))
    line = markdown(store, ["adult"], [1.0])[-1]
    assert "25.0%" in line and "0.0500 (-50.0%)" in line and "0.2000 (+0.0%)" in line and "1.50 times" in line

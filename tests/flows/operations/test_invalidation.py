"""docs/operations/caching.md, "What a changed field re-runs": every row's field is changed, what runs again compared.

The keys of all steps are known before anything runs (privsyn/engine/execute.py); a step whose key is known is Cached, a
release step whose key is new draws and pays. A few rows are run for good, under Prefect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.columns import Column
from privsyn.data_contracts.mechanism_options import AnyMechanism, Mechanism
from privsyn.data_contracts.presets import RENAMED, ROUNDS, SECTIONS
from privsyn.data_contracts.promise import Guarantee
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.keys import compute_lineage_keys
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.registry import plan_release
from privsyn.tasks.privacy.noise import OpenDPNoise
from tests.support.places import ROOT
from tests.support.specs import COLUMNS, STATED_PRIOR, people

PAGE = (ROOT / "docs" / "operations" / "caching.md").read_text(encoding="utf-8")


MECHANISMS: dict[str, type[Mechanism]] = {
    m.model_fields["name"].default: m for m in get_args(get_args(AnyMechanism)[0])
}
WITHOUT_BINS = {
    "a number without bins": {
        "columns.age": {"kind": "integer", "min": 0, "max": 9999},
        **{f"mechanism.compression.{name}": False for name in ("single_values", "round_numbers", "ladder")},
    },
    "a date without bins": {
        "columns.born": {"kind": "date", "min": "1900-01-01", "max": "2020-01-01"},
        "mechanism.compression.calendar": False,
    },
}
"""What the page's words stand for: such a column, and the options that look at it off."""


def kinds() -> tuple[type[BaseModel], ...]:
    return tuple(get_args(get_args(Column)[0]))


def fields(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every field of the spec, those of a column as ``columns.NAME.field``."""
    for name, field in model.model_fields.items():
        if name == "columns" and not above:
            for kind in kinds():
                yield from (f"columns.NAME.{f}" for f in kind.model_fields)
        elif name == "mechanism" and not above:
            yield from dict.fromkeys(f for options in MECHANISMS.values() for f in fields(options, "mechanism."))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, f"{above}{name}.")
        else:
            yield f"{above}{name}"


@dataclass(frozen=True)
class Row:
    """One row of the table by one mechanism: fields, conditions, the first step that runs again, the price.

    ``to``: the new value, where the row says it.
    """

    fields: tuple[str, ...]
    mechanism: str
    where: str
    to: str | None
    first: str
    costs: str

    @property
    def name(self) -> str:
        """The row's name in a test's name."""
        where = f"{self.where} to {self.to}" if self.to else self.where
        return ", ".join(part for part in (self.mechanism.replace("privsyn", ""), where) if part)


def list_mechanisms(where: str) -> list[str]:
    """Return the mechanisms that a row is about: those it names, else `privsyn`."""
    named = [name for name in re.findall(r"`(\w+)`", where) if name in MECHANISMS]
    if "any mechanism" in where:
        return [name for name in MECHANISMS if name not in named]
    return named or ["privsyn"]


def rows() -> list[Row]:
    (table,) = re.findall(r"<!-- invalidation -->\n(.*?)<!-- /invalidation -->", PAGE, re.S)
    found = []
    for line in table.strip().splitlines()[2:]:
        changed, where, first, costs = (cell.strip() for cell in line.strip("|").split("|"))
        names = tuple(others or field for others, field in re.findall(r"\*([^*]+)\*|`([^`]+)`", changed))
        where, _, new = re.sub(r"(^| )to (?=`)", "\n", where).partition("\n")
        for mechanism in list_mechanisms(where):
            for to in re.findall(r"`([^`]+)`", new) or [None]:
                found.append(Row(names, mechanism, where.rstrip(","), to, first, costs))
    return [replace(row, fields=tuple(name_fields(row, found))) for row in found]


def name_fields(row: Row, others: list[Row]) -> Iterator[str]:
    """Yield a row's fields; ``.*`` stands for all that no other row of the same mechanism names."""
    named = {field for other in others if other.mechanism == row.mechanism for field in other.fields}
    own = fields(MECHANISMS[row.mechanism], "mechanism.")
    known = dict.fromkeys([*(f for f in fields(ReleaseSpec) if not f.startswith("mechanism.")), *own])
    for field in row.fields:
        if field.endswith(".*"):
            rest = [f for f in known if f.startswith(field[:-1]) and f not in named]
            assert rest, field
            yield from rest
        else:
            yield field


ROWS = rows()
CASES = [(row, field) for row in ROWS for field in row.fields]

BASE: dict[str, Any] = {
    "dataset": "people",
    "data": "people.parquet",
    "unit": {"records_per_person": 1},
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "budget": {"epsilon": 10.0, "delta": 1e-8},
    "preset": "0.3",
    "mechanism": {"name": "privsyn", "split": {"one_way": 0.3, "selection": 0.1, "measurement": 0.6}},
    "columns": {
        "age": {"kind": "integer", "min": 18, "max": 89, "bins": 24, "nullable": True},
        "income": {"kind": "number", "min": 0.0, "max": 200_000.0, "bins": 20},
        "region": {"kind": "categorical", "values": ["north", "south"]},
        "happy": {"kind": "boolean"},
        "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 40},
        "born": {"kind": "date", "min": "1900-01-01", "max": "2020-01-01", "bins": 40},
        "leaves": {"kind": "time"},
        "died": {"kind": "date", "min": "1900-01-01", "max": "2020-01-01", "bins": 40},
        "caseid": {"kind": "drop"},
        "pid": {"kind": "drop"},
    },
}
RELEASED = ("age", "income", "region", "happy", "seen", "born", "leaves", "died")
SOURCE = tuple(BASE["columns"])
"""The order of the columns in the table."""

VALUES: dict[str, Any] = {
    "dataset": "others",
    "data": "elsewhere.parquet",
    "query": "SELECT * FROM people",
    "unit.person_id": "pid",
    "unit.household_id": {"unit": {"household_id": "pid", "max_records": 3}, "order": "region"},
    "order": "age",
    "constant": ["region"],
    "tables": {
        "data": "",
        "tables": {
            "people": {"key": "pid", "columns": ["region", "happy"]},
            "rows": {"of": "people", "columns": ["age", "income", "seen", "born", "leaves", "died", "caseid"]},
        },
    },
    "with_order": ["income"],
    "once": ["north"],
    "null_values": ["", "NA"],
    "csv.delimiter": ";",
    "csv.decimal": ",",
    "csv.thousands": ",",
    "csv.encoding": "cp1252",
    "csv.quote": "'",
    "mechanism.rows_by": "mbi",
    "rules": [],  # the rows say which
    "preset": "paper",
    "accountant": "gaussian",
    "mechanism.split.one_way": {"mechanism.split.one_way": 0.2, "mechanism.split.measurement": 0.7},
    "mechanism.split.selection": {"mechanism.split.selection": 0.2, "mechanism.split.measurement": 0.5},
    "mechanism.split.measurement": {"mechanism.split.measurement": 0.5, "mechanism.split.selection": 0.2},
    "mechanism.split.trends": 0.3,
    "mechanism.split.values": 0.03,
    "mechanism.split.one_ways": "equal",
    "mechanism.synthesis.rows": 100,
    "mechanism.selection.scores": "indif",
    "mechanism.selection.criterion": "dense_marg",
    "mechanism.synthesis.method": "gum",
    "mechanism.synthesis.decay": "linear",
    "focus": {"focus": {"columns": ["income"]}},
    "workload": [{"columns": ["age", "income", "happy"], "weight": 5}],
    "improves": {
        "improves": {
            "earlier": [{"run": "people-1", "epsilon": 1.0, "delta": 1e-9}],
            "epsilon": 0.5,
            "delta": 1e-9,
        }
    },
    "prior": {"prior": STATED_PRIOR},
    "cells": {"cells": {"run": "people-1", "columns": {"age": {"low": [0, 20, 40, 90], "doubtful": [3]}}}},
    "mechanism.group": ["region"],
    "mechanism.large": ["region"],
    "totals": {
        "totals": [
            {
                "columns": ["region"],
                "counts": [{"region": "north", "count": 9}],
                "statement": "Rows that anybody may count.",
            }
        ]
    },
    "together": [["born", "died"]],
    "compare": [["born", "died"]],
    "public_files": [{"field": "rules[0].lookup.table", "path": "towns.csv", "sha256": "0" * 64}],
    "engine.kind": "dask",
    "engine.workers": {"engine.kind": "dask", "engine.workers": 2},
    "formats": ["parquet", "csv"],
    "like": "source",
    "about.title": "People",
    "about.description": "A table.",
    "about.licence": "CC-BY-4.0",
    "about.publisher": "An office",
    "about.publisher_type": "Government",
    "about.contact": "name@example.org",
    "about.homepage": "https://example.org",
    "about.keywords": ["people"],
    "about.published": "2026-11-21",
    "about.source": "The register",
    "about.source_url": "https://example.org/register",
    "about.intended_use": "Teaching",
    "about.justification": "It was agreed.",
    "about.region": "Somewhere",
    "about.sector": "Education",
}
"""Field -> another value than its default's (or several fields', where one cannot change alone)."""

OF_COLUMNS: dict[str, dict[str, dict[str, Any]]] = {
    "kind": {
        "age": {"kind": "drop", "min": None, "max": None, "bins": None, "nullable": None},
        "income": {"kind": "integer", "min": 0, "max": 200_000},
        "region": {"kind": "boolean", "values": None},
        "happy": {"kind": "drop"},
        "seen": {"kind": "drop", "min": None, "max": None, "bins": None},
        "born": {"kind": "drop", "min": None, "max": None, "bins": None},
        "leaves": {"kind": "boolean"},
        "caseid": {"kind": "boolean"},
    },
    "description": {name: {"description": "told"} for name in SOURCE if name != "pid"},
    "nullable": {"age": {"nullable": False}, **{n: {"nullable": True} for n in RELEASED[1:]}},
    "measured": {name: {"measured": False} for name in (*RELEASED[:-1],)},
    "unit": {name: {"unit": "told"} for name in ("age", "income", "seen", "born", "leaves")},
    "min": {"age": {"min": 17}, "income": {"min": -1.0}, **{n: {"min": "1890-01-01"} for n in ("seen", "born")}},
    "max": {"age": {"max": 90}, "income": {"max": 3e5}, **{n: {"max": "2021-01-01"} for n in ("seen", "born")}},
    "bins": {name: {"bins": 10} for name in ("age", "income", "seen", "born", "leaves")},
    "edges": {
        "age": {"bins": None, "edges": [18, 40, 89]},
        "income": {"bins": None, "edges": [0, 9e4, 2e5]},
        "born": {"bins": None, "edges": ["1900-01-01", "1950-01-01", "2020-01-01"]},
    },
    "exact": {
        "age": {"exact": [50]},
        "income": {"exact": [0]},
        "seen": {"exact": ["2012-01-01"]},
        "born": {"exact": ["1999-09-09"]},
    },
    "step": {"age": {"step": 2}, "income": {"step": 5.0}},
    "heaps": {"age": {"heaps": [5]}, "income": {"heaps": [100, 1_000]}},
    "zone": {name: {"zone": "Europe/Berlin"} for name in ("seen", "born", "leaves")},
    "format": {**{name: {"format": "%m/%d/%Y"} for name in ("seen", "born")}, "leaves": {"format": "hhmm"}},
    "type": {"age": {"type": "int16"}, "income": {"type": "float32"}, "seen": {"type": "date"}},
    "decimals": {"income": {"decimals": 2}},
    "resolution": {"seen": {"resolution": "day"}},
    "values": {"region": {"values": ["north", "south", "east"]}},
    "unlisted": {"region": {"unlisted": "null"}},
    "levels": {"region": {"levels": ["happy"]}},
}
"""Field of a column -> column -> its fields that change (None: taken away)."""


def put(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The content with one field replaced."""
    head, _, rest = path.partition(".")
    return {**content, head: put(content.get(head, {}), rest, value) if rest else value}


def change_value(content: dict[str, Any], field: str) -> float:
    """Another value of a flag or a number than the request has: a new one needs no row of VALUES."""
    value: Any = ReleaseSpec.model_validate(content)
    for name in field.split("."):
        value = getattr(value, name)
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value / 2


def changed(content: dict[str, Any], field: str, to: str | None = None) -> Iterator[dict[str, Any]]:
    """The request with another value of the field; of a column's field, once a kind of column that has it.

    ``to``: the new value where the row says it.
    """
    if field.startswith("columns.NAME."):
        for name, fields in OF_COLUMNS[field.split(".")[2]].items():
            column = {**content["columns"][name], **fields}
            column = {n: v for n, v in column.items() if v is not None}
            yield {**content, "columns": {**content["columns"], name: column}}
        return
    if field == "rules":
        yield {**content, "rules": [{"never": to}]}
        return
    if field == "mechanism.name":
        assert to is not None
        yield by_mechanism(content, to)
        return
    value = VALUES[field] if field in VALUES else change_value(content, field)
    for path, other in (value if isinstance(value, dict) else {field: value}).items():
        content = put(content, path, other)
    yield content


def by_mechanism(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The request by another mechanism, with the options that it has too."""
    options = MECHANISMS[name].model_fields
    kept = {field: value for field, value in content["mechanism"].items() if field in options}
    if name == "prior":
        return {**content, "prior": STATED_PRIOR, "mechanism": {**kept, "name": name, "group": ["region", "happy"]}}
    return {**content, "mechanism": {**kept, "name": name}}


def based(row: Row) -> dict[str, Any]:
    """The request in which a row's field is changed."""
    if row.where == "every other field given":
        return {**ReleaseSpec.model_validate(BASE).model_dump(mode="json"), "accountant": "tight"}
    content = BASE if row.mechanism == "privsyn" else by_mechanism(BASE, row.mechanism)
    conditions = [YAML(typ="safe").load(text) for text in re.findall(r"`([^`]+)`", row.where) if text not in MECHANISMS]
    conditions += [content for words, content in WITHOUT_BINS.items() if words in row.where]
    for path, value in (pair for condition in conditions for pair in condition.items()):
        if path in ("unit.person_id", "unit.household_id"):
            content = {**content, "unit": {path.removeprefix("unit."): value, "max_records": 2}}
        else:
            content = put(content, path, value)
    return content


@dataclass(frozen=True)
class Planned:
    """A request's steps, and what they are known by: the data set and their keys."""

    spec: ReleaseSpec
    steps: tuple[Step, ...]
    names: dict[str, tuple[str, str]]

    @classmethod
    def of(
        cls, content: dict[str, Any], data: str = "these rows", fresh: int = 0, period: str | None = None
    ) -> Planned:
        return cls._of(json.dumps(content, default=str), data, fresh, period)

    @classmethod
    @cache
    def _of(cls, content: str, data: str, fresh: int, period: str | None) -> Planned:
        """Plan a request once, however many rows change it or make it."""
        spec = ReleaseSpec.model_validate(json.loads(content))
        order = tuple(name for name in SOURCE if name in spec.released_columns)
        plan = plan_release(spec, period)
        keys = compute_lineage_keys(Request(spec, order), data, fresh, OpenDPNoise, plan.steps, period)
        return cls(spec, tuple(plan.steps), {step: (spec.dataset, key) for step, key in keys.items()})

    def runs_after(self, before: Planned) -> list[Step]:
        """The steps that are not Cached after ``before``."""
        known = set(before.names.values())
        return [step for step in self.steps if self.names[step.name] not in known]


def said(row: Row, spec: ReleaseSpec) -> set[str]:
    """The release steps, by title, that the row says are paid for."""
    titles = {s.title for s in plan_release(spec).steps if isinstance(s, ReleaseStep)}
    further = {t for t in titles if t.startswith(("Residual scores", "Measure again"))}
    if row.costs == "nothing":
        return set()
    if row.costs.startswith("all of rho"):
        return titles
    found: set[str] = set()
    for part in row.costs.split(" and "):
        found |= further if part == "the further rounds" else {part}
    return found


def compare(row: Row, before: Planned, after: Planned) -> None:
    runs = after.runs_after(before)
    if row.first in ("nothing", "publishing"):
        assert (runs, row.costs) == ([], "nothing")
        assert (before.spec.public() == after.spec.public()) == (row.first == "nothing")
        return
    assert runs[0].title == row.first
    assert {step.title for step in runs if isinstance(step, ReleaseStep)} == said(row, after.spec)
    ran = {step.name for step in runs}
    for step in after.steps:  # what follows runs again too, and nothing else but what the row's first step changed
        follows = any(name.split(".")[0] in ran for name in step.inputs)
        assert step.name in ran or not follows


OTHERS = {
    "the rows of the table": lambda: Planned.of(BASE, data="other rows"),
    "a file renamed, the folder moved": lambda: Planned.of(put(BASE, "data", "elsewhere/")),  # see test_store.py
    "a column listed at another place": lambda: Planned.of({**BASE, "columns": dict(sorted(BASE["columns"].items()))}),
    "`--fresh`": lambda: Planned.of(BASE, fresh=1),
    "another `--period`": lambda: Planned.of(BASE, period="2026-11"),
    "`PRIVSYN_THREADS`": lambda: Planned.of(BASE),  # it is no part of a request; test_rerun.py has other numbers
}
"""What is no field of the spec."""


def test_every_field_has_a_row_and_every_row_a_field() -> None:
    told = {field for row in ROWS for field in row.fields}
    assert told - OTHERS.keys() == set(fields(ReleaseSpec))
    assert told >= OTHERS.keys()
    assert set(VALUES) <= set(fields(ReleaseSpec))
    assert {f"columns.NAME.{f}" for f in OF_COLUMNS} == {f for f in told if f.startswith("columns.NAME.")}


def test_every_option_of_every_mechanism_has_a_row_for_it() -> None:
    """An option of `adaptive` that is one of `privsyn` too has its row there, and one of its own where it differs."""
    rows_of: dict[str, set[str]] = {name: set() for name in MECHANISMS}
    for row in ROWS:
        rows_of[based(row)["mechanism"]["name"]].update(f for f in row.fields if f.startswith("mechanism."))
    own = {name: set(fields(options, "mechanism.")) for name, options in MECHANISMS.items()}
    assert rows_of["privsyn"] == own["privsyn"]
    assert own["adaptive"] - own["privsyn"] <= rows_of["adaptive"] <= own["adaptive"]
    for name in LATER:
        assert rows_of[name] == own[name] - {"mechanism.name"}
    assert {row.to for row in ROWS if row.fields == ("mechanism.name",)} == set(MECHANISMS)


LATER = ("independent", "mst", "privbayes", "aim", "prior")
"""Mechanisms that no version before 0.3 had."""


def earlier(content: dict[str, Any]) -> dict[str, Any]:
    """The request as versions before 0.3 spelled it: the options at the top, with their earlier names."""
    options = dict(content["mechanism"])
    earlier_names = {(section, new): name for (section, name), new in RENAMED.items()}
    flat: dict[str, Any] = {
        section: {earlier_names.get((section, name), name): value for name, value in options[section].items()}
        for section in SECTIONS
        if section in options
    }
    if options["name"] == "adaptive":
        flat["adaptive"] = {old: options[new] for old, new in ROUNDS.items() if new in options} | {
            "rounds": options.get("rounds", 1)
        }
    return {**{name: value for name, value in content.items() if name != "mechanism"}, **flat}


@pytest.mark.parametrize(
    ("row", "field"),
    [(r, f) for r, f in CASES if f.startswith("mechanism.") and not {r.mechanism, r.to} & set(LATER)],
    ids=lambda part: part if isinstance(part, str) else part.name,
)
def test_the_earlier_spelling_of_an_option_is_the_same_request(row: Row, field: str) -> None:
    """And so finds the same steps."""
    base = based(row)
    for content in (base, *changed(base, field, row.to)):
        assert earlier(content).keys() & {*SECTIONS, "adaptive"} and "mechanism" not in earlier(content)
        today, before = Planned.of(content), Planned.of(earlier(content))
        assert (today.spec, today.names) == (before.spec, before.names)


def test_every_field_of_every_kind_of_column_is_changed() -> None:
    by_kind = {str(get_args(kind.model_fields["kind"].annotation)[0]): kind for kind in kinds()}
    wanted = {(name, f) for name, kind in by_kind.items() for f in kind.model_fields}
    assert {(BASE["columns"][c]["kind"], f) for f, columns in OF_COLUMNS.items() for c in columns} == wanted


@pytest.mark.parametrize(("row", "field"), CASES, ids=[f"{f} ({r.name})".replace(" ()", "") for r, f in CASES])
def test_a_changed_field_re_runs_what_its_row_says(row: Row, field: str, tmp_path: Path) -> None:
    if field in OTHERS:
        compare(row, Planned.of(BASE, period="2026-10" if "period" in field else None), OTHERS[field]())
        return
    base = based(row)
    before = Planned.of(base)
    for content in changed(base, field, row.to):
        after = Planned.of(content)
        assert after.spec != before.spec
        if row.first.startswith("refused"):
            ledger = Ledger(tmp_path / "ledger.sqlite")
            ledger.register("people", before.spec.budget)
            with pytest.raises(RequestError, match="A cap is set once"):
                ledger.register("people", after.spec.budget)
        else:
            compare(row, before, after)


def test_a_wrong_row_is_found() -> None:
    """The comparison can fail: each row with the step or the cost of another."""
    row = next(r for r in ROWS if "mechanism.consistency.rounds" in r.fields)
    (content,) = changed(BASE, "mechanism.consistency.rounds")
    before, after = Planned.of(BASE), Planned.of(content)
    compare(row, before, after)
    for first, costs in (("Synthesize", "nothing"), ("publishing", "nothing"), (row.first, "Measure marginals")):
        with pytest.raises(AssertionError):
            compare(replace(row, first=first, costs=costs), before, after)


# A few rows for good


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.slow
def test_rows_that_are_run_for_good(places: Path) -> None:
    from privsyn.flows.release import release
    from tests.support.prefect_runs import list_states

    pq.write_table(people(300), places / "people.parquet")
    base = {
        **BASE,
        "data": str(places / "people.parquet"),
        "columns": COLUMNS,
        "budget": Guarantee(epsilon=50.0, delta=1e-8).model_dump(),
        "mechanism": {**BASE["mechanism"], "selection": {"combine_cliques": True}, "synthesis": {"sweeps": 1}},
    }
    first = release(ReleaseSpec.model_validate(base))
    real = {
        "mechanism.synthesis.seed": put(base, "mechanism.synthesis.seed", 7),
        "mechanism.consistency.rounds": put(base, "mechanism.consistency.rounds", 5),
        "mechanism.selection.gamma": put(base, "mechanism.selection.gamma", 300),
        "columns.NAME.description": put(base, "columns.happy.description", "as told"),
    }
    for field, content in real.items():
        row = next(r for r in ROWS if field in r.fields)
        spec, before = ReleaseSpec.model_validate(content), Ledger(Settings().ledger).summary()[0].rho
        state = release(spec, return_state=True)
        assert state.state_details.flow_run_id is not None
        steps = plan_release(spec).steps
        found = list_states(state.state_details.flow_run_id, len(steps) + 1)
        assert found.pop("Publish") == "Completed"
        runs = {s.title for s in Planned.of(content).runs_after(Planned.of(base))}
        assert found == {s.label: "Completed" if s.title in runs else "Cached" for s in steps}, field
        request = Request(spec)
        paid = sum(s.rho(request) for s in steps if s.title in said(row, spec))
        assert Ledger(Settings().ledger).summary()[0].rho - before == paid, field
        summary = state.result()
        assert set(summary.drawn) == {s.name for s in steps if s.title in said(row, spec)}
        if row.first == "publishing":
            assert summary.run == first.run
            assert "as told" in (Path(summary.released) / "README.md").read_text()

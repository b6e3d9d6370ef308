"""What the referee is asked: every mechanism, unit and kind of look, each with a table that shows it.

A case lists the looks that it covers.  `tests/privacy/test_referee.py` holds each case to its list, and all lists
together to the looks that the package declares: a new look needs a case here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from audit.referee import KeptInFiles, Verdict, compare_answers, open_private
from audit.referee_tables import (
    ROLES,
    Effort,
    Structure,
    Tables,
    list_others,
    make_households,
    make_members,
    make_numbered_tree,
    make_panel,
    make_rows,
    make_tree,
)
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.evaluation.quality_release import PublicSide, build_quality_step
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec
from privsyn.extras.itemsets.itemset_spec_file import release_spec_of
from privsyn.extras.itemsets.steps import build_itemset_steps
from privsyn.pipelines.common_steps import ENCODE
from privsyn.pipelines.registry import build_steps
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs import plan
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.privacy.noise import NoiseSource, SeededNoise
from privsyn.tasks.steps.quality_figures import build_figures

DROP: dict[str, Any] = {"kind": "drop"}
WAGE: dict[str, Any] = {"kind": "integer", "min": 1, "max": 9_999}
ROW_COLUMNS: dict[str, Any] = {
    "pid": DROP,
    "wage": WAGE,
    "price": {"kind": "integer", "min": 0, "max": 5_000, "heaps": [10, 100]},
    "share": {"kind": "number", "min": 0, "max": 500, "decimals": 1, "exact": [0]},
    "low": {"kind": "integer", "min": 0, "max": 500},
    "high": {"kind": "integer", "min": 0, "max": 500},
    "start": {"kind": "date", "min": "2009-06-01", "max": "2013-06-01"},
    "stop": {"kind": "date", "min": "2009-06-01", "max": "2013-06-01"},
    "sex": {"kind": "categorical", "values": ["f", "m"], "nullable": True},
    "region": {"kind": "categorical", "values": ["north", "south", "east"]},
    "age": {"kind": "integer", "min": 18, "max": 89, "nullable": True},
    "works": {"kind": "boolean"},
}
FEW = ("pid", "wage", "price", "start", "sex", "region")
"""Columns of mechanisms other than PrivSyn: with fewer, looks take less time."""

SETS: dict[str, Any] = {"workload": [{"columns": ["wage", "sex", "region"]}], "focus": {"columns": ["region"]}}
PRICE: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-9}
STATEMENT = "Rows that the referee made, which are nobody's."
STATED = {"sha256": "0" * 64, "statement": STATEMENT}
SPLIT = {"trends": 0.3, "values": 0.09}
"""More of the budget for looks inside cells than they have by default."""

AGAIN = "trends asked again"
"""A case whose first look at trends leaves some unclear, which are asked again with the marginals."""

INSIDE = ("rung_counts", "value_counts")
FOUND = {"rung_counts": "choose_cells.cuts", "value_counts": "find_heavy_cells.counted"}
"""Look -> the released table of what it, or the one before it, found."""

SEARCHED = ("triple_scores", "measure_sets")
THREE = ("one_way_marginals", "indif_scores", "measure_marginals")
LINKED = (*THREE, "measure_transitions")


@dataclass(frozen=True)
class Case:
    """One spec and the tables that it is held against.

    ``looks``: the looks that it covers, without the numbers of rounds; ``make``: the base, from persons and a seed;
    ``few``: persons in continuous integration; ``prior``: whether the spec has a public prior, which is made here;
    ``found``: released tables of what noisy counts found, which must have rows, or else later looks saw no such thing;
    ``in_files``: the table is a folder of files, and what is counted lies in files that the engine counts part by part.
    """

    mechanism: str
    unit: str
    spec: ReleaseSpec
    looks: tuple[str, ...]
    make: Callable[[int, int], Tables]
    structure: Structure
    few: int = 60
    build: Callable[[Request], Sequence[Step]] = build_steps
    prior: bool = False
    found: tuple[str, ...] = ()
    in_files: bool = False

    @property
    def name(self) -> str:
        """Mechanism and unit."""
        return f"{self.mechanism}, {self.unit}"

    @property
    def value_columns(self) -> frozenset[str]:
        """The columns of all tables that looks read: no identifiers and keys, which say whose a row is."""
        tables = self.spec.tables.values()
        below = {column for table in tables for column in table.columns or ()}
        whose = {self.structure.unit, *self.structure.keys, *(table.key for table in tables if table.key)}
        return frozenset({*self.spec.released_columns, *below} - whose)

    def make_request(self, tables: Tables) -> Request:
        """Return the public request, with columns in the source's order."""
        columns = open_source(hand_over(tables), self.spec).columns
        released = self.spec.released_columns
        order = tuple(c for c in columns if c in released)
        return Request(self.spec, order, threads=1, prior_rows=make_prior(self.spec, order) if self.prior else None)

    def open_rows(self, tables: Tables, batch_rows: int | None) -> PrivateAccess:
        """Return the access to a private table."""
        return open_private(self.spec, hand_over(tables), batch_rows)

    def judge(
        self,
        effort: Effort,
        seed: int = 0,
        noise: NoiseSource | None = None,
        change: Callable[[Sequence[Step]], Sequence[Step]] = lambda steps: steps,
    ) -> Verdict:
        """Hold the release against its tables; ``change``: what a mutant makes of the steps."""
        tables = self.make(self.few * effort.size, seed)
        request = self.make_request(tables)
        steps = change(self.build(request))
        others = list_others(tables, self.structure, effort, seed)
        compare = partial(compare_answers, request, steps)
        noise = noise or SeededNoise(seed)
        if not self.in_files:
            return compare(self.open_rows, tables, others, noise)
        with TemporaryDirectory() as folder:
            files = KeptInFiles(Path(folder))
            opened = partial(self._open_files, files)
            return compare(opened, tables, others, noise, keep=files.keep)

    def _open_files(self, files: KeptInFiles, tables: Tables, batch_rows: int | None) -> PrivateAccess:
        return open_private(self.spec, files.write(tables[""]), batch_rows)


def hand_over(tables: Tables) -> Any:
    """Return tables as a source takes them: one table alone, or several by their names."""
    return tables[""] if list(tables) == [""] else tables


def make_spec(columns: Mapping[str, Any], unit: Mapping[str, Any], **more: Any) -> ReleaseSpec:
    """Return a spec whose budget lets every look say something of some hundred rows."""
    content = {"dataset": "referee", "unit": unit, "privacy": PRICE, "budget": {"epsilon": 1_000.0, "delta": 1e-8}}
    return ReleaseSpec.model_validate({**content, "columns": columns, **more})


def make_prior(spec: ReleaseSpec, order: tuple[str, ...]) -> CodeTable:
    """Return public rows in fine codes."""
    domain, rng = plan(spec, order).domain, np.random.default_rng(1)
    columns = tuple(rng.integers(0, size, 400).astype(np.uint16) for size in domain.sizes)
    return CodeTable(domain, columns)


def _make_rows(columns: Sequence[str], persons: int, seed: int) -> Tables:
    return {"": make_rows(persons, seed=seed)[""].select(columns)}


def _build_rows_case(
    mechanism: str, unit: Mapping[str, Any], looks: tuple[str, ...], words: str = "", **more: Any
) -> Case:
    """Return a case of one table whose rows are not linked."""
    enforced = "person_id" in unit
    records = unit.get("max_records", unit.get("records_per_person", 1))
    columns = more.pop("columns", FEW)
    options = {"name": mechanism, **more.pop("options", {})}
    price = {"epsilon": PRICE["epsilon"] * records, "delta": PRICE["delta"]}
    content = {"columns": {name: ROW_COLUMNS[name] for name in columns}, "mechanism": options, "privacy": price, **more}
    spec = make_spec(content.pop("columns"), unit, **content)
    name = f"{'persons of' if enforced else 'records, at most'} {records}{words and ', ' + words}"
    structure = Structure("pid" if enforced else "", records)
    found = tuple(FOUND[look] for look in looks if look in FOUND)
    few = max(60, 150 // records) if found else 60
    make = partial(_make_rows, columns)
    return Case(mechanism, name, spec, looks, make, structure, few, prior="prior" in more, found=found)


def _list_rows_cases() -> list[Case]:
    """Return the cases of one table whose rows are not linked: all mechanisms, and caps of 1 to 5 rows."""
    two, looks = {"person_id": "pid", "max_records": 2}, (*THREE, *INSIDE, "trend_scores")
    together = {"together": [["start", "stop"]], "compare": [["low", "high"]]}
    question = [*SETS["workload"], {"question": "mean(wage) by region where age < 30"}]
    improves = {"earlier": [{"run": "earlier", "epsilon": 16.0, "delta": 1e-9}], "epsilon": 16.0, "delta": 1e-9}
    whole = {"split": SPLIT}
    cases = [
        _build_rows_case("privsyn", {"person_id": "pid", "max_records": most}, looks, options=whole)
        for most in range(1, 6)
    ]
    of_two = _build_rows_case("privsyn", two, looks, "in files", options=whole)
    return [
        *cases,
        replace(of_two, in_files=True),
        _build_rows_case(
            "privsyn",
            {"person_id": "pid", "max_records": 1},
            (*looks, *SEARCHED),
            "every kind of column",
            columns=tuple(ROW_COLUMNS),
            options=whole,
            **{**SETS, "workload": question, **together},
        ),
        _build_rows_case("privsyn", {"records_per_person": 1}, looks, options=whole, totals=[TOTAL]),
        _build_rows_case("privsyn", {"records_per_person": 3}, looks, options=whole),
        _build_rows_case(
            "privsyn",
            {"person_id": "pid", "max_records": 1},
            (*THREE, *INSIDE, "trend_scores"),
            AGAIN,
            privacy={"epsilon": 4.0, "delta": 1e-9},
            options={"split": {"trends": 0.15, "values": 0.09}},
        ),
        _build_rows_case(
            "privsyn",
            two,
            (*THREE, "value_counts", "trend_scores"),
            "cells of an earlier release",
            options=whole,
            cells=EARLIER,
        ),
        _build_rows_case("privsyn", two, THREE, "the paper's method", preset="paper"),
        _build_rows_case("privsyn", two, (*THREE, *INSIDE), "a public prior", prior=STATED),
        _build_rows_case(
            "privsyn",
            two,
            (*looks, *SEARCHED, "measure_more"),
            "improved",
            options=whole,
            improves=improves,
            privacy={"epsilon": 60.0, "delta": 1e-9},
            **SETS,
        ),
        _build_rows_case(
            "adaptive",
            two,
            (*looks, "residual_scores", "measure_again"),
            options={"rounds": 2, "triples": True, **whole},
        ),
        _build_rows_case(
            "independent",
            two,
            (
                "rung_counts",
                "one_way_marginals",
            ),
        ),
        _build_rows_case("mst", two, ("rung_counts", *THREE)),
        _build_rows_case("privbayes", two, ("rung_counts", *THREE)),
        _build_rows_case(
            "aim",
            two,
            ("rung_counts", *THREE, "measure_sets", "residual_scores", "measure_again"),
            options={"triples": True, "rounds": 3},
            workload=SETS["workload"],
        ),
        _build_rows_case(
            "prior",
            two,
            ("one_way_marginals", "measure_marginals", "measure_groups", "measure_in_groups"),
            options={"group": ["region"]},
            prior=STATED,
        ),
    ]


EARLIER: dict[str, Any] = {
    "run": "referee-1",
    "columns": {
        "wage": {"low": [1, 200, *range(500, 4_000, 250), 5_000], "doubtful": [16]},
        "price": {"low": [*range(0, 600, 50), 1_000, 3_000]},
        "start": {"low": [14_396, *range(14_600, 15_800, 100)]},
    },
}
"""Cells of all columns that a first look would cut."""

TOTAL = {"rows": 300, "statement": STATEMENT, "hold": "close"}

PANEL_COLUMNS: dict[str, Any] = {
    "pid": DROP,
    "year": {"kind": "integer", "min": 2000, "max": 2003},
    "sex": {"kind": "categorical", "values": ["f", "m"]},
    "age": {"kind": "integer", "min": 20, "max": 60},
    "income": {"kind": "number", "min": 0, "max": 100, "decimals": 1},
    "wage": WAGE,
    "job": {"kind": "categorical", "values": ["none", "part", "full"]},
}
HOME_COLUMNS: dict[str, Any] = {
    "hid": DROP,
    "region": {"kind": "categorical", "values": ["north", "south"]},
    "role": {"kind": "categorical", "values": ROLES, "unlisted": "child"},
    "age": {"kind": "integer", "min": 0, "max": 89},
    "sex": {"kind": "categorical", "values": ["f", "m"]},
    "income": {"kind": "number", "min": 0, "max": 100, "decimals": 1},
}
MEMBERS: dict[str, Any] = {
    "homes": {
        "key": "hid",
        "columns": {"region": HOME_COLUMNS["region"], "rooms": {"kind": "integer", "min": 1, "max": 12}},
    },
    "members": {
        "of": "homes",
        "key": "mid",
        "order": "role",
        "max": 4,
        "once": ROLES[:2],
        "columns": {name: HOME_COLUMNS[name] for name in ("role", "age", "sex", "income")},
    },
}
TREE: dict[str, Any] = {
    "persons": {
        "key": "pid",
        "columns": {
            "sex": PANEL_COLUMNS["sex"],
            "height": {"kind": "integer", "min": 100, "max": 250},
        },
    },
    "visits": {
        "of": "persons",
        "key": "visit",
        "order": "year",
        "max": 3,
        "columns": {
            "year": {"kind": "integer", "min": 2000, "max": 2009},
            "job": PANEL_COLUMNS["job"],
            "cost": {"kind": "integer", "min": 0, "max": 5_000},
        },
    },
    "drugs": {
        "of": "visits",
        "key": "drug",
        "order": "day",
        "max": 3,
        "columns": {
            "day": {"kind": "integer", "min": 0, "max": 30},
            "dose": {"kind": "integer", "min": 0, "max": 2},
        },
        "workload": [{"question": "share(ever(dose == 2)) by job"}],
    },
    "buys": {
        "of": "persons",
        "max": 3,
        "columns": {
            "week": {"kind": "integer", "min": 1, "max": 52},
            "online": {"kind": "integer", "min": 0, "max": 1},
        },
    },
}


def _make_two_tables(persons: int, seed: int) -> Tables:
    tables = make_tree(persons, seed)
    return {name: tables[name] for name in ("persons", "visits")}


def _list_linked_cases() -> list[Case]:
    """Return the cases whose rows are linked: panels, households, two tables and trees of tables."""
    linked, without = (*LINKED, "measure_rows"), "measure_without_rows"
    price = {"privacy": {**PRICE, "epsilon": 16.0}}
    panel = {"order": "year", "constant": ["sex"], "with_order": ["age"], **price}
    statements = ("ever(job == 'none')", "always(income > 20)", "count(job == 'none') > 1", "spells(job == 'none') > 1")
    asked = [{"question": f"share({statement}) by sex"} for statement in (*statements, "change(income) < 0")]
    named = {"workload": [{"columns": ["age", "sex", "income"]}]}
    sums = {"question": "share(sum(cost) > 200) by sex"}
    home = {"order": "role", "once": ROLES[:2], "constant": ["region"]}
    two_tables = {name: TREE[name] for name in ("persons", "visits")}
    drugs = {"drugs": ("visits", "visit")}
    three_deep = (*linked, without, "rung_counts", "measure_sets", "trend_scores")
    return [
        Case(
            "privsyn",
            f"a panel, {most} rows a person, ties in the order",
            make_spec(PANEL_COLUMNS, {"person_id": "pid", "max_records": most}, workload=asked, **panel),
            (*linked, "rung_counts", "trend_scores", "measure_sets"),
            make_panel,
            Structure("pid"),
            found=(FOUND["rung_counts"],),
        )
        for most in (2, 4)
    ] + [
        Case(
            "privsyn",
            "households with roles",
            make_spec(HOME_COLUMNS, {"household_id": "hid", "max_records": 4}, **home, **named),
            (*LINKED, "rung_counts", "trend_scores", "measure_sets"),
            make_households,
            Structure("hid"),
            few=120,
            found=(FOUND["rung_counts"],),
        ),
        Case(
            "privsyn",
            "households and members",
            make_spec({}, {"household_id": "hid"}, tables=MEMBERS),
            (*LINKED, "rung_counts", "trend_scores", without),
            make_members,
            Structure("hid", top="homes"),
        ),
        Case(
            "privsyn",
            "persons and visits",
            make_spec({}, {"person_id": "pid"}, tables=two_tables, workload=[sums]),
            (*linked, "rung_counts", "trend_scores", "measure_sets", without),
            _make_two_tables,
            Structure("pid", top="persons", keys=("visit",)),
            few=150,
        ),
        Case(
            "privsyn",
            "a tree three deep",
            make_spec({}, {"person_id": "pid"}, tables=TREE, **price),
            three_deep,
            make_tree,
            Structure("pid", above=drugs, top="persons", keys=("visit",)),
        ),
        Case(
            "privsyn",
            "a tree three deep, visits numbered within persons",
            make_spec({}, {"person_id": "pid"}, tables=TREE, **price),
            three_deep,
            make_numbered_tree,
            Structure("pid", top="persons"),
        ),
    ]


@dataclass(frozen=True)
class ItemsetCase(Case):
    """A release of frequent itemsets, of a table of items by transaction; ``records`` transactions are one person's."""

    itemsets: ItemsetSpec | None = None

    @property
    def value_columns(self) -> frozenset[str]:
        """The column of items."""
        return frozenset(("item",))

    def make_request(self, tables: Tables) -> Request:
        """Return the public request of the itemsets."""
        return Request(self.spec)

    def open_rows(self, tables: Tables, batch_rows: int | None) -> PrivateAccess:
        """Return the access to a table of transactions."""
        return PrivateAccess(RowsOfPersons(lambda *_: tables[""].to_batches(batch_rows)))


ITEMS = tuple("abcdefgh")


def _make_transactions(persons: int, seed: int) -> Tables:
    """Return items of transactions, some of more items than are kept; every two transactions are a person's."""
    rng = np.random.default_rng(seed)
    rows = [(f"p{p:03d}", f"t{2 * p + t}", item) for p in range(persons) for t in range(2) for item in _draw_items(rng)]
    pids, transactions, items = map(list, zip(*(rows[i] for i in rng.permutation(len(rows))), strict=True))
    return {"": pa.table({"pid": pids, "transaction": transactions, "item": items})}


def _draw_items(rng: np.random.Generator) -> list[str]:
    held = rng.random(len(ITEMS)) < np.linspace(0.9, 0.2, len(ITEMS))
    return [*np.array(ITEMS)[held].tolist(), "unlisted"]


def _build_itemset_case() -> Case:
    layout = {"kind": "pairs", "transaction": "transaction", "item": "item"}
    asked = ItemsetSpec.model_validate(
        {
            "dataset": "referee",
            "data": "-",
            "layout": layout,
            "items": ITEMS,
            "transactions_per_person": 2,
            "max_items": 4,
            "top": 10,
            "privacy": PRICE,
            "budget": PRICE,
        }
    )
    return ItemsetCase(
        "itemsets",
        "persons of 2 transactions",
        release_spec_of(asked),
        ("item_counts", "pair_counts", "basis_marginals"),
        _make_transactions,
        Structure("pid", keys=("transaction",), enforced=False),
        build=lambda request: build_itemset_steps(asked),
        itemsets=asked,
    )


def _build_quality_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps that release how far a synthetic table is from the private one."""
    domain = request.encoding.domain
    groups = {a: np.arange(size, dtype=np.int32) // 4 for a, size in zip(domain.attributes, domain.sizes, strict=True)}
    bins = Domain.of({a: int(group.max()) + 1 for a, group in groups.items()})
    rng = np.random.default_rng(2)
    synthetic = CodeTable(bins, tuple(rng.integers(0, size, 300).astype(np.uint16) for size in bins.sizes))
    return ENCODE, build_quality_step(PublicSide(synthetic, groups, "0" * 64, build_figures(bins)))


def _build_quality_case() -> Case:
    case = _build_rows_case("privsyn", {"person_id": "pid", "max_records": 2}, ("quality_figures",))
    return replace(case, mechanism="quality figures", build=_build_quality_steps)


CASES: tuple[Case, ...] = (*_list_rows_cases(), *_list_linked_cases(), _build_itemset_case(), _build_quality_case())
"""Every case; tests run all of them."""

IN_MEMORY = tuple(case for case in CASES if not case.in_files)
"""The cases of instruments that hold tables in memory."""

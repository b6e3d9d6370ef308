"""Bug classes 1, 2 and 17: bounds, bins, categories and settings come from the spec and public constants.

It does not see bins that follow from counts of cells and of single values, nor units other than records_per_person; its
extreme row is one of one table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Progress, Step
from privsyn.pipelines import common_steps, registry
from privsyn.pipelines.one_shot import STEPS
from privsyn.pipelines.registry import MECHANISMS, build_steps
from privsyn.publish.folder import ReleaseSummary
from privsyn.tasks.codecs import plan
from privsyn.tasks.steps import encode
from tests.support.households import make_household_spec
from tests.support.linked_tables import make_tables_spec, make_visits_content
from tests.support.panels import make_panel_spec
from tests.support.releases import QUICK, few, outputs, released, run
from tests.support.specs import COLUMNS, STATED_PRIOR, make_spec, mechanism_fields, people

Save = Callable[..., str]
EXTREME = {"age": 10**9, "income": 1e300, "region": "Atlantis", "happy": None, "seen": None, "caseid": "extreme"}


def with_an_extreme_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, pa.Table.from_pylist([EXTREME], schema=table.schema)])


# 1: domain, bounds or categories read from the data


def public_things(spec: ReleaseSpec, summary: ReleaseSummary) -> dict[str, Any]:
    """All that must follow from the spec alone: schema, codes, bins, ranges, and what stage 1 asks at what noise."""
    encoding = plan(spec)
    manifest = json.loads((Path(summary.released) / "manifest.json").read_text(encoding="utf-8"))
    return {
        "schema": str(released(summary, "synthetic.parquet").schema),
        "labels": encoding.labels(),
        "bins": {name: group.tolist() for name, group in encoding.groups.items()},
        "ranges": [(n, r.low, r.high, r.values and r.values.to_pylist()) for n, r in encoding.ranges().items()],
        "receipts": released(summary, "marginals/one_way_receipts.parquet").to_pylist(),
        "fine codes": released(summary, "marginals/recode.parquet").select(["attribute", "code"]).to_pylist(),
        "spec": manifest["spec"],
        "order": manifest["column_order"],
    }


def test_01_an_extreme_row_changes_no_public_thing(places: Path, save: Save) -> None:
    seen = []
    for table in (people(300), with_an_extreme_row(people(300))):
        spec = make_spec(data=save(table), **QUICK)
        seen.append(public_things(spec, run(spec)))
    assert seen[0] == seen[1]


def test_01_levels_of_a_column_are_those_of_the_rules(places: Path, save: Save) -> None:
    columns = {**COLUMNS, "region": {**COLUMNS["region"], "levels": ["happy"]}}
    gives = [["north", True], ["south", False], ["east", False], ["other", True]]
    rules = [{"lookup": {"from": "region", "to": "happy", "rows": gives}}]
    seen = []
    for table in (people(300), with_an_extreme_row(people(300))):
        spec = make_spec(columns, rules=rules, data=save(table), **QUICK)
        seen.append(public_things(spec, run(spec)))
    assert seen[0] == seen[1]
    assert seen[0]["labels"]["region (in happy)"] == ["False", "True"]


def test_01_mutant_bounds_of_the_data(places: Path, save: Save) -> None:
    """Planted mutant: a plan whose bounds are the data's own."""
    seen = []
    for table in (people(300), with_an_extreme_row(people(300))):
        ages = table["age"].drop_null().to_pylist()
        columns = {**COLUMNS, "age": {**COLUMNS["age"], "min": min(ages), "max": max(ages)}}
        spec = make_spec(columns, data=save(table), dataset=f"people{len(seen)}", **QUICK)
        seen.append(public_things(spec, run(spec)))
    assert seen[0] != seen[1]


@pytest.mark.parametrize("missing", ["min", "max"])
def test_01_a_column_without_bounds_or_values_is_refused(missing: str) -> None:
    """There is no default that could be read off the data."""
    without = {name: value for name, value in COLUMNS["age"].items() if name != missing}
    with pytest.raises(ValidationError, match=missing):
        make_spec({"age": without})
    with pytest.raises(ValidationError, match="values"):
        make_spec({"region": {"kind": "categorical"}})


# 2: binning by private quantiles


def codes_of_a_few(others: pa.Table) -> list[dict[str, Any]]:
    """Codes of the same ten rows before other rows: they say in which bins these lie."""
    table = pa.concat_tables([people(10), others.cast(people(10).schema)])
    made = outputs(common_steps.ENCODE, {}, make_spec(), rows=lambda: table.to_batches())
    return made["encoded_rows"].slice(0, 10).to_pylist()


def rich() -> pa.Table:
    table = people(500, seed=4)
    return table.set_column(1, "income", pa.array(np.linspace(150_000, 199_000, 500)))


def test_02_bins_do_not_follow_the_values() -> None:
    assert codes_of_a_few(people(500, seed=3)) == codes_of_a_few(rich())


def test_02_mutant_bins_at_the_datas_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the bins of income are its private quantiles."""
    original = encode.encode

    def by_quantiles(rows: Callable[[], Any], encoding: Any, *rest: Any) -> Any:
        incomes = np.concatenate([np.asarray(b.column("income")) for b in rows()])
        codec = next(c for c in encoding.codecs if c.attribute == "income")
        edges = np.quantile(incomes, np.linspace(0, 1, len(codec._starts)))
        monkeypatch.setattr(codec, "_starts", np.maximum.accumulate(edges))
        return original(rows, encoding, *rest)

    monkeypatch.setattr(encode, "encode", by_quantiles)
    assert codes_of_a_few(people(500, seed=3)) != codes_of_a_few(rich())


def test_02_coarse_codes_follow_from_noisy_counts_alone(places: Path, save: Save) -> None:
    """The step that merges values is handed noisy counts; a row, or any other table, would fail it."""
    spec = make_spec(data=save(people(300)), **QUICK)
    summary = run(spec)
    assert compressed(summary, common_steps.COMPRESS_DOMAIN, spec).equals(released(summary, "marginals/recode.parquet"))


def test_02_mutant_coarse_codes_from_the_rows(places: Path, save: Save) -> None:
    """Planted mutant: values are merged by how often they really occur."""

    def by_rows(request: Request, inputs: Inputs, progress: Progress) -> Any:
        return {"recode": pa.concat_tables(pa.Table.from_batches([b]) for b in inputs.private.rows())}

    spec = make_spec(data=save(people(300)), **QUICK)
    with pytest.raises(TypeError, match="no access to private rows"):
        compressed(run(spec), replace(common_steps.COMPRESS_DOMAIN, run=by_rows), spec)


def compressed(summary: ReleaseSummary, step: Step, spec: ReleaseSpec) -> pa.Table:
    read = {
        "one_way_marginals.noisy": released(summary, "marginals/one_way.parquet"),
        "one_way_marginals.receipts": released(summary, "marginals/one_way_receipts.parquet"),
    }
    return outputs(step, read, spec)["recode"]


# 17: tuning on the private data


def settings_of(spec: ReleaseSpec) -> dict[str, str]:
    """What each step is set to, as it enters the step's key."""
    request = Request(spec, tuple(spec.released_columns))
    return {step.name: step.key_json(request) for step in build_steps(request)}


@pytest.mark.parametrize("name", MECHANISMS)
def test_17_settings_and_defaults_do_not_depend_on_the_data(places: Path, save: Save, name: str) -> None:
    """Every setting of every step follows from the spec, with no table there at all; so do those it leaves out."""
    sources = (str(places / "absent"), save(people(9)), save(people(90), "more.parquet"))
    settings = [settings_of(few(data, **mechanism_fields(name), synthesis={})) for data in sources]
    assert settings[0] == settings[1] == settings[2]
    targets: dict[str, Any] = {"focus": {"columns": ["age"]}, "workload": [{"columns": ["age", "region"]}]}
    earlier = [{"run": "people-1", "epsilon": 1.0, "delta": 1e-9}]
    targets["improves"] = {"earlier": earlier, "epsilon": 0.5, "delta": 1e-9}
    targets["prior"] = STATED_PRIOR
    targets["cells"] = {"run": "people-1", "columns": {"age": {"low": [0.0, 18.0, 65.0]}}}
    targets["totals"] = [{"rows": 9, "statement": "Rows that anybody may count."}]
    targets["together"], targets["like"] = [["age", "older"]], "source"
    targets["compare"] = [["age", "older"]]
    columns = {**COLUMNS, "older": COLUMNS["age"]}
    chosen = make_spec(columns, **targets, csv={"line_breaks": True}, rules=[{"never": "happy and age < 20"}])
    linked = make_panel_spec().public().keys() | make_household_spec().public().keys()
    linked |= make_tables_spec(make_visits_content()).public().keys()
    shown = chosen.public().keys() | linked  # an order goes with none of those, an unset accountant is left out
    assert ReleaseSpec.model_fields.keys() == shown | {"data", "query", "engine", "public_files", "accountant"}


def test_17_mutant_a_setting_that_follows_the_data(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the most cells of a pair are the number of private rows."""

    def tuned(request: Request) -> dict[str, int]:
        return {"max_cells": pq.read_metadata(request.spec.data).num_rows}

    mutants = tuple(replace(s, settings=tuned) if s.name == "select_pairs" else s for s in STEPS)
    monkeypatch.setitem(registry.MECHANISMS, "privsyn", lambda request: mutants)
    with pytest.raises(FileNotFoundError):
        settings_of(few("absent.parquet"))
    assert settings_of(few(save(people(9)))) != settings_of(few(save(people(90), "more.parquet")))

"""The mechanism `prior`, end to end: charges, certificate, note, rows of the public table, rerun, other readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from privsyn.api.check import check
from privsyn.base.settings import Settings
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.pipelines.registry import plan_release
from privsyn.publish.folder import ReleaseSummary
from tests.support.documented import read_example
from tests.support.examples import keep_first
from tests.support.releases import release_in_process
from tests.support.specs import make_spec, people, with_public_inputs

pytestmark = pytest.mark.usefixtures("places")

STATEMENT = "People of another register, who published their rows themselves."
LOOKS = ("one_way_marginals", "measure_marginals", "measure_groups", "measure_in_groups")
Save = Callable[..., str]


def spec_of(data: str, folder: Path, public: pa.Table, zeros: bool = False, **changes: Any) -> ReleaseSpec:
    """By groups of region; ``changes``: options of the mechanism and fields of the spec."""
    pq.write_table(public, folder / "last_year.parquet")
    fields = {n: changes.pop(n) for n in ("rules", "unit", "columns") if n in changes}
    spec = make_spec(
        fields.pop("columns", None),
        data=data,
        privacy={"epsilon": 4.0, "delta": 1e-9},
        budget={"epsilon": 50.0, "delta": 1e-8},
        mechanism={"name": "prior", "group": ["region"], "synthesis": {"seed": 3}, **changes},
        prior={"table": "last_year.parquet", "statement": STATEMENT, "zeros": zeros},
        **fields,
    )
    return with_public_inputs(spec, folder)


def made_from(spec: ReleaseSpec) -> tuple[ReleaseSummary, pa.Table]:
    summary = release_in_process(spec, Settings())
    return summary, pq.read_table(Path(summary.released) / "synthetic.parquet")


def test_rows_follow_the_private_groups_and_stay_in_the_public_support(save: Save, tmp_path: Path) -> None:
    """The public table has other shares of regions and of happiness, and no old person who is unhappy."""
    public = people(3_000, seed=1).drop_columns(["caseid"])
    old_unhappy = pc.and_(pc.greater(public["age"], 66), pc.equal(public["happy"], False)).fill_null(False)
    thinned = pa.array(np.random.default_rng(0).random(3_000) < 0.3)
    public = public.filter(pc.invert(pc.or_(old_unhappy, pc.and_(pc.equal(public["region"], "north"), thinned))))
    private = people(3_000)
    summary, rows = made_from(spec_of(save(private), tmp_path, public))
    told = pc.sum(pc.equal(rows["region"], "north")).as_py() / rows.num_rows
    true = pc.sum(pc.equal(private["region"], "north")).as_py() / 3_000
    assert abs(told - true) < 0.03 < abs(pc.sum(pc.equal(public["region"], "north")).as_py() / public.num_rows - true)
    odd = pc.and_(pc.greater(rows["age"], 75), pc.equal(rows["happy"], False))  # inside a bin values are drawn anew
    assert pc.sum(odd.fill_null(False)).as_py() in (0, None)
    assert summary.rows == rows.num_rows


@pytest.mark.parametrize("zeros", keep_first([True, False]))
def test_a_group_that_the_public_table_lacks_has_rows_if_its_count_stands_out(
    save: Save, tmp_path: Path, zeros: bool
) -> None:
    public = people(1_000, seed=1).drop_columns(["caseid"])
    public = public.filter(pc.not_equal(public["region"], "north"))
    _, rows = made_from(spec_of(save(people(2_000)), tmp_path, public, zeros))
    north = pc.sum(pc.equal(rows["region"], "north")).as_py()
    assert 900 < north < 1_300  # a code that no public row has is left alone by `zeros`
    assert "east" not in rows["region"].to_pylist()  # neither table has it


def test_two_levels_and_several_records_a_person(save: Save, tmp_path: Path) -> None:
    options = {"group": ["region", "happy"], "large": ["region"], "shrink": False}
    public = people(1_500, seed=1).drop_columns(["caseid"])
    spec = spec_of(save(people(2_000)), tmp_path, public, unit={"records_per_person": 3}, **options)
    summary, _ = made_from(spec)
    certificate = json.loads((Path(summary.released) / "certificate.json").read_text(encoding="utf-8"))
    assert {g["sensitivity"] for stage in certificate["stages"] for g in stage["groups"]} == {3}
    receipts = pq.read_table(Path(summary.released) / "marginals/measured_receipts.parquet")
    assert all("region" in a for a in receipts["attributes"].to_pylist())


def test_the_example_of_the_docs_is_taken(save: Save, tmp_path: Path) -> None:
    example = read_example("docs/mechanisms.md")
    pq.write_table(people(200), tmp_path / example["prior"]["table"])
    spec = with_public_inputs(make_spec(data=save(people(300)), **example), tmp_path)
    found = check(spec)
    assert found.warnings[0].startswith("prior: 200 rows that the spec states to be public")
    assert [step.name for step in plan_release(spec).steps if step.kind is StepKind.RELEASE] == list(LOOKS)


def test_no_row_breaks_a_rule(save: Save, tmp_path: Path) -> None:
    rules = [{"never": "region == 'north' and not happy"}, {"never": "age < 30 and income > 50000"}]
    public = people(1_500, seed=1).drop_columns(["caseid"])
    _, rows = made_from(spec_of(save(people(2_000)), tmp_path, public, rules=rules))
    t = rows.to_pandas()
    assert len(t) > 1_800 and (t.region == "north").any()
    assert not ((t.region == "north") & ~t.happy.astype(bool)).any() and not ((t.age < 30) & (t.income > 50_000)).any()

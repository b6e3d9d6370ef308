"""Rules, end to end: zero rows that break one, in every mechanism, shard and number of rows, at no cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import privsyn
from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.codecs import plan
from tests.support.evaluations import slight_settings
from tests.support.examples import keep_first
from tests.support.ruled import COLUMNS, RULES, people, ruled_spec

WAYS: dict[str, dict[str, Any]] = {
    "sweeps": {},
    "shards": {"mechanism": {"name": "privsyn", "synthesis": {"shard_rows": 1000}}},
    "gum": {"preset": "paper"},
    "adaptive": {"mechanism": {"name": "adaptive"}},
    "independent": {"mechanism": {"name": "independent"}},
    "mst": {"mechanism": {"name": "mst"}},
    "privbayes": {"mechanism": {"name": "privbayes"}},
    "aim": {"mechanism": {"name": "aim", "rounds": 2}},
}


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))


def broken_rows(release: privsyn.Release, spec: ReleaseSpec) -> int:
    """Rows of the release that break a rule, computed here from pandas for RULES, and by the rules themselves."""
    t = release.to_pandas()
    hired = pd.to_datetime(t.hired)
    own = (
        (t.exper != t.age - t.educ - 6)
        | ((t.age < 15) & (t.wage.notna() | t.marital.isin(["married", "widowed"])))
        | ((t.wage > 5000) & (t.marital == "widowed"))
        | ((hired.dt.year < 2000) & (t.age < 35))
        | (t.east.astype(int) + t.north != 1)
    )
    rules = plan(spec).rules
    assert rules is not None
    table = {name: release.table[name].combine_chunks() for name in release.table.column_names}
    assert int(rules.find_broken_rows(table).any(axis=0).sum()) == 0
    return int(own.sum())


@pytest.mark.parametrize("way", keep_first(WAYS, 2))
def test_no_row_breaks_a_rule(way: str, tmp_path: Path) -> None:
    private = people(3000, seed=7)
    spec = ruled_spec(data="", **WAYS[way])
    release = privsyn.release(private, spec, out=tmp_path)
    assert len(release.to_pandas()) > 2500
    assert broken_rows(release, spec) == 0


@pytest.mark.slow
def test_no_row_of_a_million_breaks_a_rule(tmp_path: Path) -> None:
    synthesis = {"rows": 1_000_000, "shard_rows": 300_000}
    spec = ruled_spec(data="", mechanism={"name": "privsyn", "synthesis": synthesis})
    release = privsyn.release(people(20_000, seed=7), spec, out=tmp_path)
    assert release.table.num_rows == 1_000_000
    assert broken_rows(release, spec) == 0


def test_columns_keep_their_types_and_another_rule_on_known_edges_costs_nothing(tmp_path: Path) -> None:
    private = people(1000, seed=2)
    release = privsyn.release(private, ruled_spec(data=""), out=tmp_path)
    assert release.table.column_names == list(COLUMNS)
    assert release.table.schema.field("exper").type == pa.int64()
    assert release.table.schema.field("east").type == pa.bool_()
    assert release.table.schema.field("north").type == pa.int64()
    note = (release.folder / "README.md").read_text()
    assert "## Rules" in note
    assert "exper is `age - educ - 6`" in note
    attributes = set(release.marginals["recode"]["attribute"].to_pylist())
    assert "exper" not in attributes  # it is computed, and not measured
    assert {"age", "educ", "one of east, north"} <= attributes
    spent = privsyn.ledger(out=tmp_path).as_json()
    more = ruled_spec([*RULES, {"never": "age < 15 and hired is not null"}], data="")
    second = privsyn.release(private, more, out=tmp_path)
    assert second.folder != release.folder
    assert privsyn.ledger(out=tmp_path).as_json() == spent
    table = second.to_pandas()
    assert not ((table.age < 15) & table.hired.notna()).any()


@pytest.mark.slow
def test_an_evaluation_sees_every_column_and_counts_private_breaks(tmp_path: Path) -> None:
    private = people(2000, seed=4)
    release = privsyn.release(private, ruled_spec(data=""), out=tmp_path)
    report = privsyn.evaluate(release, private, settings=slight_settings(tmp_path))
    assert {o.column for o in report.evaluation.one_ways} == set(COLUMNS)
    html = report.html.read_text()
    child = int(((private.age < 15) & (private.wage.notna() | (private.marital != "never married"))).sum())
    assert child > 0
    assert "never age &lt; 15" in html
    assert f"{child:,}" in html


def test_a_lookup_table_is_read_beside_the_spec_and_never_by_a_run(tmp_path: Path) -> None:
    (tmp_path / "years.csv").write_text("marital,educ,note\nnever married,10,a\nmarried,12,b\nwidowed,9,c\n")
    columns = {name: COLUMNS[name] for name in ("age", "educ", "marital")}
    columns["educ"] = {**columns["educ"], "nullable": True}
    rule = {"lookup": {"from": "marital", "to": "educ", "table": str(tmp_path / "years.csv")}}
    private = people(500, seed=1)
    spec = {**ruled_spec([], data="").model_dump(exclude_unset=True), "columns": columns, "rules": [rule]}
    table = privsyn.release(private[list(columns)], spec, out=tmp_path).to_pandas()
    wanted = table.marital.map({"never married": 10, "married": 12, "widowed": 9})
    assert (table.educ.astype(float).fillna(-1) == wanted.fillna(-1)).all()
    from privsyn.base.settings import load_settings
    from tests.support.releases import release_in_process

    unread = ReleaseSpec.model_validate(spec)
    with pytest.raises(RequestError, match="a run needs the table itself"):
        release_in_process(unread, load_settings(tmp_path), data=pa.Table.from_pandas(private[list(columns)]))


@pytest.mark.slow
def test_random_seeds_and_sizes(tmp_path: Path) -> None:
    private = people(400, seed=9)
    rng = np.random.default_rng(0)
    spec = ruled_spec(data="", budget={"epsilon": 100, "delta": 1e-7})
    for rows in rng.integers(1, 3000, 3):
        synthesis = {"rows": int(rows), "seed": int(rng.integers(1000)), "shard_rows": 1000}
        again = spec.with_rows(**synthesis)
        assert broken_rows(privsyn.release(private, again, out=tmp_path), again) == 0

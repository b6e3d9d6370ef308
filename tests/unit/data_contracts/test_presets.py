"""Presets of the release spec: constants beneath what the spec itself says."""

from __future__ import annotations

from typing import Any

import pytest

from privsyn.data_contracts.presets import (
    ALL_PAIRS_COLUMNS,
    RELATIONS,
    WIDE_RELATIONS,
    find_open_values,
)
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.comparison.method import MethodSettings
from privsyn.flows.deploy import read_spec
from tests.support.specs import make_spec


def test_the_paper_preset_is_the_paper_method() -> None:
    """One list of the paper's values: the spec's preset and the comparison's `privsyn-paper` agree."""
    assert MethodSettings.of(make_spec(preset="paper")) == MethodSettings.of(make_spec()).as_in_the_paper()


DECLINED: tuple[dict[str, Any], ...] = (
    *({"split": {name: 0}} for name in ("trends", "values")),
    *({"compression": {name: False}} for name in RELATIONS["compression"]),
    {"consistency": {"pooled": False}},
    *({"synthesis": {name: False}} for name in RELATIONS["synthesis"]),
)
OPEN = {name: {"kind": "integer", "min": 0, "max": 999} for name in "xy"}


@pytest.mark.parametrize("how", [{}, {"exclude_unset": True}, {"exclude_defaults": True}, {"mode": "json"}], ids=str)
def test_what_a_spec_declines_stays_declined_when_it_is_read_again(how: dict[str, Any]) -> None:
    """A manifest, a run's note and a spec whose public files are read are specs that were written and read again."""
    specs = [make_spec(OPEN, mechanism=declined) for declined in DECLINED]
    specs += [make_spec(OPEN, focus={"columns": ["x"], name: False}) for name in ("triples", "scores")]
    specs.append(make_spec(OPEN, workload=[{"columns": ["x", "y"], "measured": False}]))
    for spec in specs:
        assert ReleaseSpec.model_validate(spec.model_dump(**how)) == spec
    assert len({str(spec.model_dump(**how)) for spec in specs}) == len(specs)
    open_ = make_spec(OPEN).model_dump()["mechanism"]
    assert {s: {n: open_[s][n] for n in of} for s, of in RELATIONS.items()} == RELATIONS


def test_a_deployed_preset_means_the_same(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Fields that equal a class default but not the preset's value must not be left out."""
    text = """
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 1, delta: 1.0e-9}
budget: {epsilon: 2, delta: 1.0e-9}
preset: paper
synthesis: {method: sweep}
columns: {happy: {kind: boolean}}
"""
    (tmp_path / "people.yaml").write_text(text, encoding="utf-8")
    spec = ReleaseSpec.model_validate(read_spec(str(tmp_path / "people.yaml"))["spec"])
    assert spec.mechanism.synthesis.method == "sweep" and spec.mechanism.split.one_way == 0.1


def test_more_columns_than_all_pairs_are_scored_of_have_trends_although_they_have_bins() -> None:
    number = {"kind": "integer", "min": 0, "max": 9, "bins": 10}
    most = {f"q{i}": number for i in range(ALL_PAIRS_COLUMNS)}
    one_more = {**most, "last": {"kind": "boolean"}}
    assert find_open_values("0.4", most) == {} == find_open_values("0.4", {**most, "id": {"kind": "drop"}})
    assert find_open_values("0.4", one_more) == WIDE_RELATIONS and find_open_values("0.3", one_more) == {}
    assert find_open_values("0.4", {name: {"kind": "boolean"} for name in one_more}) == {}
    for columns, trends in ((most, 0.0), (one_more, WIDE_RELATIONS["split"]["trends"])):
        spec = make_spec(columns=columns)
        assert (spec.mechanism.split.trends, spec.mechanism.consistency.pooled) == (trends, trends > 0)
    assert make_spec(columns=one_more, mechanism={"split": {"trends": 0.0}}).mechanism.split.trends == 0.0

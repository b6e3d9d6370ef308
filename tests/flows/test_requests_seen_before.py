"""Which changed requests count as seen before, when the cap is used up: those that can cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from privsyn.base.errors import BudgetRefusedError
from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support import specs
from tests.support.kept import Kept
from tests.support.opened import watched
from tests.support.releases import few, released, run
from tests.support.specs import people

FULL = {"epsilon": 1.0, "delta": 1e-9}
"""Privacy and cap: one release uses all."""


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    """A request that was released, and used up the cap."""
    data = kept.begin_with(monkeypatch, people(200))
    asked = few(data, privacy=FULL, budget=FULL)
    kept.once(lambda: run(asked))
    return asked


def changed(spec: ReleaseSpec, **synthesis: Any) -> ReleaseSpec:
    return specs.changed(spec, synthesis={**spec.mechanism.synthesis.model_dump(), **synthesis})


def with_value(spec: ReleaseSpec, section: str, name: str, value: Any) -> ReleaseSpec:
    holder = spec.mechanism if hasattr(spec.mechanism, section) else spec
    return specs.changed(spec, **{section: {**getattr(holder, section).model_dump(), name: value}})


def test_with_further_rounds_another_synthesis_is_refused_before_the_table_is_opened(
    places: Path, save: Callable[..., str]
) -> None:
    spec = few(save(people(200)), privacy=FULL, budget=FULL, adaptive={"rounds": 1})
    run(spec)
    with watched(Path(spec.data)) as events:
        for change in ({"seed": 5}, {"sweeps": 1}, {"method": "gum"}):
            with pytest.raises(BudgetRefusedError):
                run(changed(spec, **change))
        assert events() == 0, "the private table was opened"
    assert run(changed(spec, rows=150, shard_rows=20_000, oversample=2)).drawn == ()


def test_what_draws_nothing_needs_no_room(spec: ReleaseSpec) -> None:
    """As docs/operations/caching.md says."""
    assert not spec.mechanism.selection.combine_cliques
    for field, name, value in (
        ("consistency", "one_way_weight", 7),
        ("selection", "gamma", spec.mechanism.selection.gamma // 2),
    ):
        request = with_value(spec, field, name, value)
        assert request != spec
        assert run(request).drawn == (), (field, name)
    content = spec.model_dump()
    age = {**content["columns"]["age"], "type": "int16", "description": "as told"}
    summary = run(ReleaseSpec.model_validate({**content, "columns": {**content["columns"], "age": age}}))
    assert summary.drawn == ()
    assert released(summary, "synthetic.parquet").schema.field("age").type == pa.int16()
    assert run(changed(spec, seed=5, sweeps=1, rows=150)).drawn == ()


def test_what_draws_anew_is_refused_before_the_table_is_opened(spec: ReleaseSpec) -> None:
    with watched(Path(spec.data)) as events:
        for field, name, value in (
            ("selection", "max_cells", 400),
            ("compression", "sigmas", 2.0),
            ("split", "remeasure_one_ways", not spec.mechanism.split.remeasure_one_ways),
            ("unit", "records_per_person", 2),
        ):
            with pytest.raises(BudgetRefusedError):
                run(with_value(spec, field, name, value))
        assert events() == 0, "the private table was opened"

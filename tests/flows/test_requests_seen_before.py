"""Which changed requests count as seen before, when the cap is used up: those that can cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_contracts.spec import ReleaseSpec
from flows.errors import BudgetRefusedError
from tests.opened import watched
from tests.releases import few, run
from tests.specs import people

FULL = {"epsilon": 1.0, "delta": 1e-9}
"""Privacy and cap: one release uses all."""


def changed(spec: ReleaseSpec, **synthesis: Any) -> ReleaseSpec:
    content = spec.model_dump()
    return ReleaseSpec.model_validate({**content, "synthesis": {**content["synthesis"], **synthesis}})


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


def test_without_further_rounds_it_draws_nothing(places: Path, save: Callable[..., str]) -> None:
    spec = few(save(people(200)), privacy=FULL, budget=FULL)
    run(spec)
    assert run(changed(spec, seed=5, sweeps=1, rows=150)).drawn == ()

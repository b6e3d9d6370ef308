"""What a request's draws and its result are kept by: no two requests have the same."""

from __future__ import annotations

from typing import Any

import pytest

from privsyn.data_contracts.artifacts import StepKind
from privsyn.engine.keys import compute_lineage_keys, key_draws, key_result
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.privacy.noise import NoNoise, OpenDPNoise, SeededNoise
from tests.support.linked_tables import make_tables_spec, make_tree_content
from tests.support.specs import make_spec


def keys_of(content: dict[str, Any], **changes: Any) -> tuple[str, str]:
    spec = make_tables_spec(content, **changes)
    request = Request(spec, tuple(spec.released_columns))
    steps = build_steps(request)
    keys = compute_lineage_keys(request, "fingerprint", 0, OpenDPNoise, steps)
    return key_draws(keys, steps), key_result(keys, steps)


DOSE = {"kind": "integer", "min": 0, "max": 3}


@pytest.mark.parametrize(
    "changes",
    [
        {"max": 3},
        {"columns": {"day": {"kind": "integer", "min": 0, "max": 30}, "dose": DOSE}},
        {"workload": [{"question": "share(ever(dose == 2)) by job"}]},
        {"focus": {"columns": ["dose"]}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_a_table_before_the_last_one_is_asked_is_part_of_both(changes: dict[str, Any]) -> None:
    """The looks at the last table follow from nothing of the table of drugs, which is another branch."""
    one, other = keys_of(make_tree_content()), keys_of(make_tree_content(**changes))
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_another_seed_of_the_rows_has_the_same_draws() -> None:
    one, other = (keys_of(make_tree_content(), synthesis={"seed": seed}) for seed in (1, 2))
    assert one[0] == other[0]
    assert one[1] != other[1]


@pytest.mark.parametrize(
    "change", [{"noise": NoNoise}, {"noise": SeededNoise}, {"generation": 1}, {"fingerprint": "b"}]
)
def test_no_look_is_shared_with_test_noise_another_generation_or_other_data(change: dict[str, Any]) -> None:
    """Nothing that follows from one is taken for a release either."""
    request = Request(make_spec())
    steps = build_steps(request)
    usual: dict[str, Any] = {"fingerprint": "a", "generation": 0, "noise": OpenDPNoise}
    one, other = (compute_lineage_keys(request, steps=steps, **how) for how in (usual, usual | change))
    first = next(number for number, step in enumerate(steps) if step.kind is StepKind.RELEASE)
    assert [step.name for step in steps[first:] if one[step.name] == other[step.name]] == []

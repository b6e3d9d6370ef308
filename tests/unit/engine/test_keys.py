"""What a request's draws and its result are kept by: no two requests have the same."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.draw import FIELDS_WITHOUT_NOISE, _find_unlike, _list_free_fields
from privsyn.engine.inputs import Inputs
from privsyn.engine.keys import compute_lineage_keys, key_draws, key_result
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, get_step
from privsyn.pipelines.registry import build_steps, plan_release
from privsyn.tasks.codecs.encode_rows import list_compared, list_numbered
from privsyn.tasks.privacy.noise import NoNoise, OpenDPNoise, SeededNoise
from tests.support.linked_tables import make_tables_spec, make_tree_content
from tests.support.panels import make_panel_spec
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
    """The looks at the last table follow from nothing of the table of drugs, which is another table pair."""
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


def test_which_columns_change_from_row_to_row_makes_no_other_tables_of_encoded_rows() -> None:
    """Their numbers are stored for all that could: requests that differ in this alone share what is encoded."""
    equal = {"compression": {"ladder": False}}
    specs = [make_panel_spec(with_order=names, **equal) for names in (["age"], [])]
    requests = [Request(spec, tuple(spec.released_columns)) for spec in specs]
    encodes = [build_steps(request)[0] for request in requests]
    assert list_compared(requests[0].encoding) != list_compared(requests[1].encoding)
    assert list_numbered(requests[0].encoding) == list_numbered(requests[1].encoding)
    assert encodes[0].outputs == encodes[1].outputs
    keys = [step.key_json(r) for step, r in zip(encodes, requests, strict=True)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("spec", [make_panel_spec(), make_panel_spec(compression={"ladder": False})])
def test_tables_of_kept_rows_are_deleted_when_the_run_is_published(spec: ReleaseSpec) -> None:
    steps = build_steps(Request(spec, tuple(spec.released_columns)))
    kept = [(step, table) for step in steps for table in step.outputs if table in ("rows_of_persons", "without_rows")]
    assert kept and all(table in step.transient for step, table in kept)


def test_one_ways_of_another_division_have_another_key() -> None:
    requests = [Request(make_spec(mechanism=name), ("age",)) for name in ("independent", "mst")]
    steps = [get_step(build_steps(request), "one_way_marginals") for request in requests]
    own = [step.build_key(request) | {"rho": ""} for step, request in zip(steps, requests, strict=True)]
    assert own[0] != own[1]


def test_a_further_table_is_decoded_anew_where_its_columns_have_another_order() -> None:
    content = make_tree_content()
    again = {**content, "buys": {**content["buys"], "columns": dict(reversed(content["buys"]["columns"].items()))}}
    one, other = keys_of(content), keys_of(again)
    assert one[0] == other[0] and one[1] != other[1]


def test_where_tables_are_makes_no_other_request() -> None:
    """Notes hide the places; what a request was paid for is found all the same."""
    spec = make_tables_spec(make_tree_content())
    tables = {name: table.read_at(f"{name}.parquet") for name, table in spec.tables.items()}
    placed = spec.model_copy(update={"tables": tables})
    free = FIELDS_WITHOUT_NOISE | _list_free_fields(plan_release(placed), spec)
    assert list(_find_unlike(placed, spec, free, explicit_only=False)) == []


def test_a_step_gets_only_the_budgets_and_looks_that_it_declares() -> None:
    steps = plan_release(make_spec()).steps
    for step in steps:
        inputs = step.lend(Request(make_spec()), Inputs({}))
        assert inputs.rho.keys() - {step.name} == {*step.budgets}
        assert (step.name in inputs.rho) is isinstance(step, ReleaseStep)
        for kind in LookKind:
            with nullcontext() if kind in step.looks else pytest.raises(KeyError):
                inputs.list_looks(kind)
    assert any(step.budgets for step in steps) and any(step.looks for step in steps)

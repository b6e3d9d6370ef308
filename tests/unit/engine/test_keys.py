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


def test_rows_are_decoded_anew_where_draws_no_longer_come_out_as_a_largest_value_with_a_cell_of_its_own() -> None:
    rate = {"kind": "number", "min": 0, "max": 1000, "decimals": 1}
    settings = {}
    for name, column in {"plain": rate | {"bins": 10}, "top": rate}.items():
        columns = {"rate": column, "happy": {"kind": "boolean"}}
        request = Request(make_spec(columns, compression={"ladder": False}))
        settings[name] = build_steps(request)[-1].settings(request)
    assert settings["top"]["below top"] == ["rate"]
    assert "below top" not in settings["plain"]


def test_rows_are_encoded_anew_where_earlier_versions_read_a_column_otherwise() -> None:
    """Categories by the file's decimal mark, and the multiples that short floats hold; all others as they were."""
    columns = {
        "size": {"kind": "categorical", "values": [1.5, 2.5], "unlisted": "null", "nullable": True},
        "rooms": {"kind": "categorical", "values": [1, 2], "unlisted": "null", "nullable": True},
        "rate": {"kind": "number", "min": 0, "max": 1, "decimals": 1},
        "share": {"kind": "number", "min": 0, "max": 1, "bins": 4},
    }

    def read(short: frozenset[str] = frozenset(), **csv: Any) -> dict[str, Any]:
        request = Request(make_spec(columns, csv=csv)).order_columns((), short_floats=short)
        return build_steps(request)[0].settings(request)

    by_marks, short_floats = "categories by marks", "short floats as multiples"
    assert not {by_marks, short_floats} & {*read(), *read(thousands=",")}
    assert read(decimal=",")[by_marks] == ["size"]
    assert read(frozenset({"rate", "share"}))[short_floats] == ["rate"]


def test_sets_are_planned_anew_where_null_is_beside_values_of_one_of_three_columns() -> None:
    number = {"kind": "number", "min": 0, "max": 100}
    columns = dict.fromkeys("abc", number) | {"d": number | {"nullable": True}}
    written = {}
    for named in ("abc", "abd", "ad"):
        request = Request(make_spec(columns, workload=[{"columns": list(named)}]))
        steps = {step.name: step.settings(request) for step in build_steps(request)}
        written[named] = [steps[name].get("null apart") for name in ("compress_domain", "plan_sets")]
    assert written == {"abc": [None, None], "abd": [["d"]] * 2, "ad": [None, None]}

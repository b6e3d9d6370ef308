"""Public knowledge: a changed part re-runs exactly the steps that declare it, and no step is handed another part."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import privsyn.pipelines
from privsyn.data_contracts.domain import Domain
from privsyn.engine.keys import compute_lineage_keys
from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.pipelines.registry import plan_release
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart, PublicKnowledge
from privsyn.tasks.privacy.noise import OpenDPNoise
from tests.support.panels import PANEL_COLUMNS, make_panel_spec
from tests.support.snapshots import COLUMNS, KNOWLEDGE, MECHANISMS, make_spec_of
from tests.support.specs import make_spec

STATEMENT = "Published by the office in January 2026."


def totals(*columns: str, north: int = 160) -> dict[str, Any]:
    counts = [
        {"region": "north", "happy": True, "count": north},
        {"region": "south", "happy": True, "count": 79},
        {"region": "other", "happy": False, "count": 61},
    ]
    kept = [{name: row[name] for name in (*columns, "count")} for row in counts]
    return {"totals": [{"columns": list(columns), "counts": kept, "statement": STATEMENT}]}


def prior(digit: str, **more: Any) -> dict[str, Any]:
    return {"prior": {"sha256": digit * 64, "statement": "Rows that anybody may have.", **more}}


BY_HAPPY = [{"happy": True, "count": 239}, {"happy": False, "count": 61}]
SPENT = {"columns": {**COLUMNS, "spent": COLUMNS["income"], "saved": COLUMNS["income"]}}
WIDE = {f"q{i}": {"kind": "boolean"} for i in range(301)}
PANEL = {"columns": PANEL_COLUMNS, "unit": {"person_id": "pid", "max_records": 5}, "order": "year"}

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], set[KnowledgePart]]] = {
    "rules": (
        {"rules": [{"never": "happy and region == 'north'"}]},
        {"rules": [{"never": "happy and region == 'south'"}]},
        {KnowledgePart.RULES},
    ),
    "rules with other bins": (
        {"rules": [{"never": "age < 20 and happy"}]},
        {"rules": [{"never": "age < 24 and happy"}]},
        {KnowledgePart.RULES, KnowledgePart.CODES},
    ),
    "rules across rows": (
        {**PANEL, "rules": [{"never": "age < previous.age"}]},
        {**PANEL, "rules": [{"never": "age < previous.age - 1"}]},
        {KnowledgePart.ACROSS},
    ),
    "prior": (prior("1"), prior("2"), {KnowledgePart.PRIOR, KnowledgePart.PRIOR_PAIRS}),
    "zeros": (prior("1"), prior("1", zeros=True), {KnowledgePart.PRIOR, KnowledgePart.PRIOR_PAIRS}),
    "counts": (totals("region"), totals("region", north=150), {KnowledgePart.KNOWN_CODES, KnowledgePart.TOTALS}),
    "pairs": (
        totals("region", "happy"),
        totals("region", "happy", north=150),
        {KnowledgePart.KNOWN_CODES, KnowledgePart.TOTALS},
    ),
    "columns": (
        totals("region"),
        {"totals": [{"columns": ["happy"], "counts": [{"happy": True, "count": 300}], "statement": STATEMENT}]},
        {KnowledgePart.KNOWN_COLUMNS, KnowledgePart.KNOWN_CODES, KnowledgePart.TOTALS},
    ),
    "a pair more": (
        {"totals": [*totals("region")["totals"], {"columns": ["happy"], "counts": BY_HAPPY, "statement": STATEMENT}]},
        totals("region", "happy"),
        {KnowledgePart.KNOWN_PAIRS, KnowledgePart.TOTALS},
    ),
    "focus": (
        {"focus": {"columns": ["income"], "weight": 3, "scores": False}},
        {"focus": {"columns": ["age"], "scores": False}},
        {KnowledgePart.TARGETS},
    ),
    "scored": (
        {"focus": {"columns": ["income"]}},
        {"focus": {"columns": ["age"]}},
        {KnowledgePart.TARGETS, KnowledgePart.SCORED},
    ),
    "wide": (
        {"columns": WIDE, "focus": {"columns": ["q0"], "scores": False}},
        {"columns": WIDE, "focus": {"columns": ["q1"], "scores": False}},
        {KnowledgePart.TARGETS, KnowledgePart.NEAR, KnowledgePart.TWO_VALUED},
    ),
    "workload": (
        {"workload": [{"columns": ["age", "income"], "weight": 2}]},
        {"workload": [{"columns": ["age", "income"], "weight": 4}]},
        {KnowledgePart.TARGETS},
    ),
    "together": (
        {**SPENT, "together": [["income", "spent"]]},
        {**SPENT, "together": [["income", "saved"]]},
        {KnowledgePart.TOGETHER},
    ),
}
"""What is changed -> fields before, fields after, the parts that are not what they were."""


def planned(asked: dict[str, Any], told: dict[str, Any]) -> tuple[Request, list[Step], dict[str, str]]:
    spec = make_spec_of({**asked, **told})
    steps = list(plan_release(spec).steps)
    request = Request(spec, tuple(spec.released_columns))
    return request, steps, compute_lineage_keys(request, "00" * 32, 0, OpenDPNoise, steps)


def takes(asked: dict[str, Any], told: dict[str, Any]) -> bool:
    try:
        make_spec_of({**asked, **told})
    except ValueError:
        return False
    return True


PAIRS = [
    (mechanism, change)
    for mechanism, change in product(MECHANISMS, CHANGES)
    if (change != "wide" or mechanism == "privsyn")  # each plan of so many columns takes time
    and takes(MECHANISMS[mechanism], CHANGES[change][0])
    and (mechanism, change) != ("aim", "scored")
]


def find_steps_after(steps: list[Step], first: set[str]) -> set[str]:
    """The steps, and all that read their tables, however many steps later."""
    reached = set(first)
    for step in steps:
        if reached & set(step.producers):
            reached.add(step.name)
    return reached


@pytest.mark.parametrize(("mechanism", "change"), PAIRS)
def test_a_changed_part_runs_exactly_the_steps_that_declare_it_again(mechanism: str, change: str) -> None:
    before, after, parts = CHANGES[change]
    was, steps, keys = planned(MECHANISMS[mechanism], before)
    now, later, others = planned(MECHANISMS[mechanism], after)
    assert {p for p in KnowledgePart if was.public.key([p]) != now.public.key([p])} == parts
    assert [s.name for s in steps] == [s.name for s in later]
    declared = {s.name for s in steps if parts & set(s.reads)}
    assert {name for name in keys if keys[name] != others[name]} == find_steps_after(steps, declared)


def test_a_rule_behind_a_question_about_persons_counts_again() -> None:
    """Another expression, table or definition of a computed column is another key, where no edge is new."""

    def key(expression: str, looked_up: str, decimals: int = 1) -> str:
        columns = {**PANEL_COLUMNS, "twice": {**PANEL_COLUMNS["income"], "decimals": decimals}, "low": COLUMNS["happy"]}
        jobs = [["none", looked_up == "none"], ["part", looked_up == "part"], ["full", False], ["other", False]]
        rules = [{"lookup": {"from": "job", "to": "low", "rows": jobs}}, {"derive": {"twice": expression}}]
        asked = [{"question": "share(ever(low)) by sex"}, {"question": "share(sum(twice) > 50) by sex"}]
        spec = make_panel_spec(columns=columns, rules=rules, workload=asked)
        request = Request(spec, tuple(spec.released_columns))
        steps = list(plan_release(spec).steps)
        return compute_lineage_keys(request, "00" * 32, 0, OpenDPNoise, steps)["encode"]

    keys = [
        key("income / 2", "none"),
        key("income / 3", "none"),
        key("income / 2", "part"),
        key("income / 2", "none", 2),
    ]
    assert len(set(keys)) == len(keys)


def test_every_part_is_changed_and_every_mechanism_asked() -> None:
    assert set().union(*(parts for _, _, parts in CHANGES.values())) == set(KnowledgePart)
    assert {mechanism for mechanism, _ in PAIRS} == set(MECHANISMS)
    assert {change for _, change in PAIRS} == set(CHANGES)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_a_step_inherits_a_step_before_it_declares(mechanism: str) -> None:
    _, steps, _ = planned(MECHANISMS[mechanism], {})
    for step in steps:
        for part in step.inherits:
            declared = {s.name for s in steps if part in s.reads}
            assert step.name in find_steps_after(steps, declared)


def test_a_part_that_is_not_declared_is_refused() -> None:
    """Every accessor, where the spec states that part, answers for its own parts and raises for others."""
    accessors = {
        "prior": ({KnowledgePart.PRIOR, KnowledgePart.PRIOR_PAIRS}, prior("1")),
        "totals": ({KnowledgePart.TOTALS}, totals("region")),
        "measured_alone": (
            {KnowledgePart.KNOWN_COLUMNS, KnowledgePart.KNOWN_CODES, KnowledgePart.TOTALS},
            totals("region"),
        ),
        "known_pairs": ({KnowledgePart.KNOWN_PAIRS, KnowledgePart.TOTALS}, totals("region")),
        "exact_in_rules": ({KnowledgePart.TOTALS}, {**totals("region"), **KNOWLEDGE["rules"]}),
        "targets": ({KnowledgePart.TARGETS}, KNOWLEDGE["focus"]),
        "scored_more": ({KnowledgePart.SCORED}, KNOWLEDGE["focus"]),
        "in_focus": ({KnowledgePart.NEAR}, KNOWLEDGE["focus"]),
        "two_valued": ({KnowledgePart.TWO_VALUED}, {"focus": {"columns": ["happy"]}}),
        "together": ({KnowledgePart.TOGETHER}, KNOWLEDGE["together"]),
    }
    for name, (enough, told) in accessors.items():
        public = planned({}, told)[0].public
        if name == "prior":
            public = replace(public, _prior=CodeTable(Domain((), ()), ()))
        for part in KnowledgePart:
            restricted = public.only([part])
            if part in enough:
                getattr(restricted, name)
            else:
                with pytest.raises(TypeError, match="does not declare"):
                    getattr(restricted, name)


def test_a_step_is_handed_what_it_declares_and_nothing_else() -> None:
    request, steps, _ = planned({}, totals("region"))
    for step in steps:
        allowed = step.restrict(request).public
        assert isinstance(allowed, PublicKnowledge) and allowed.parts == {*step.reads, *step.inherits}
    assert request.public.parts == set(KnowledgePart)  # the request itself answers for all, as before


def test_no_mechanism_looks_public_knowledge_up_by_itself() -> None:
    """The modules of mechanisms ask the one object: a field of the spec read there would be missing from no key."""
    fields = {"rules", "totals", "together", "focus", "workload", "targets", "prior_key"}
    for path in sorted(Path(privsyn.pipelines.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in fields and isinstance(node.value, ast.Attribute):
                assert node.value.attr != "spec", f"{path.name}:{node.lineno}"


def test_a_request_makes_each_columns_codec_once_whatever_its_order() -> None:
    request = Request(make_spec())
    ordered = request.order_columns(tuple(reversed(request.spec.released_columns)))
    assert ordered.encoding.domain.attributes == tuple(reversed(request.encoding.domain.attributes))
    assert {id(codec) for codec in ordered.encoding.codecs} == {id(codec) for codec in request.encoding.codecs}
    anew = Request(request.spec, ordered.column_order).encoding
    assert [codec.labels() for codec in anew.codecs] == [codec.labels() for codec in ordered.encoding.codecs]
    assert ordered.order_columns(("age",)).column_order == ordered.column_order


def test_a_restricted_request_has_what_was_made_and_answers_for_its_parts_alone() -> None:
    request = Request(make_spec(**totals("region")))
    step = request.restrict([KnowledgePart.PRIOR])
    assert step.encoding is request.encoding and step.spec is request.spec
    assert request.public.totals is not None
    for restricted in (step, step.order_columns(tuple(reversed(request.spec.released_columns)))):
        with pytest.raises(TypeError, match="does not declare that it reads"):
            _ = restricted.public.totals
    assert step.restrict([KnowledgePart.TOTALS]).public.totals is not None


def test_another_spec_has_codecs_of_its_own() -> None:
    request = Request(make_spec())
    same, fewer = request.restrict(()), make_spec({"age": {"kind": "integer", "min": 0, "max": 9}})
    assert replace(same, spec=fewer).encoding.domain.attributes == ("age",)
    assert replace(same, threads=2).encoding is request.encoding

"""Targets of the spec: what is refused and how, and what specs without any look like."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.question_language import parse_names, parse_question, split_formula
from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.notes import write_section
from tests.support.specs import COLUMNS, make_spec

BASE: dict[str, Any] = {
    "dataset": "people",
    "data": "people.parquet",
    "unit": {"records_per_person": 1},
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "budget": {"epsilon": 10.0, "delta": 1e-8},
    "columns": {
        "age": {"kind": "integer", "min": 0, "max": 99},
        "adult": {"kind": "boolean"},
        "income": {"kind": "number", "min": 0, "max": 100, "bins": 4},
        "id": {"kind": "drop"},
    },
}


def read(**more: Any) -> ReleaseSpec:
    return ReleaseSpec.model_validate({**BASE, **more})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"focus": {"columns": []}}, "names no column. Name at least one"),
        ({"focus": {"columns": ["age", "age"]}}, "'age' twice. Take one out"),
        ({"focus": {"columns": ["ages"]}}, "no column 'ages'. Name one that it releases"),
        ({"focus": {"columns": ["age"], "weight": 0.5}}, "greater than or equal to 1"),
        ({"focus": {"columns": ["age"], "weight": 101}}, "less than or equal to 100"),
        (
            {"focus": {"columns": ["adult"]}, "rules": [{"derive": {"adult": "age >= 18"}}]},
            "'adult' is computed from others by a rule, so it is not measured. Name the columns",
        ),
        ({"focus": {"columns": ["age"]}, "mechanism": {"name": "independent"}}, "does not support targets"),
        (
            {"focus": {"columns": ["age"]}, "preset": "paper"},
            "'dense_marg', which does not support targets. Take the field",
        ),
        ({"workload": [{"columns": ["age"]}]}, "names one column only, 'age'. Add another"),
        ({"workload": [{"columns": ["age", "pay"]}]}, "no column 'pay'"),
        ({"workload": [{"columns": []}]}, "names no column"),
        ({"workload": [{"question": "adult"}]}, "asks about one column only, which is measured anyway. Ask about two"),
        ({"workload": [{"question": "adult where pay < 3"}]}, "no column 'pay'"),
        ({"workload": [{"question": "adult where income <"}]}, "not an expression that can be read"),
        ({"workload": [{"question": "adult where income + 3"}]}, "is a number, not a condition"),
        ({"workload": [{"question": "correlation(age, income)"}]}, "correlation() has no cells to measure"),
        ({"workload": [{"question": "adult, age", "columns": ["age", "income"]}]}, "names its columns itself"),
    ],
)
def test_what_is_wrong_is_refused_with_its_cure(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read(**more)
    assert words in str(refused.value)


def test_targets_are_public_and_told() -> None:
    spec = read(focus={"columns": ["income"]}, workload=[{"columns": ["age", "adult"], "weight": 5}])
    assert spec.targets() == {key: spec.public()[key] for key in ("focus", "workload")}
    note = write_section("targets", spec)
    assert "relations with income: 10 times" in note and "relations between age, adult: 5 times" in note


SET = ["age", "income", "happy"]


def test_the_preset_measures_sets_of_few_columns_and_looks_for_triples() -> None:
    content = {"focus": {"columns": ["income"]}, "workload": [{"columns": SET}, {"columns": list(COLUMNS)[:-1]}]}
    now, before = make_spec(**content), make_spec(**content, preset="0.3")
    assert now.focus is not None and now.focus.triples and now.looks_for_triples
    assert [m.measured for m in now.workload] == [True, True]
    assert before.focus is not None and not before.focus.triples and before.measured_sets == ()
    assert not {"triples", "scores"} & before.public()["focus"].keys()
    assert now.scores_focus_more and not before.scores_focus_more
    rows = make_spec(**content, mechanism={"name": "privsyn", "synthesis": {"method": "gum"}})
    assert rows.measured_sets == () and not rows.looks_for_triples
    aim = make_spec(**content, mechanism="aim")
    assert not aim.looks_for_triples and not aim.scores_focus_more


@pytest.mark.parametrize(("more", "weight"), [({}, 10), ({"weight": 3}, 3), ({"preset": "0.3"}, 3)])
def test_a_focus_counts_ten_times_unless_a_spec_or_its_preset_says_otherwise(
    more: dict[str, object], weight: float
) -> None:
    named = {"columns": ["income"], **{k: v for k, v in more.items() if k == "weight"}}
    spec = make_spec(focus=named, **{k: v for k, v in more.items() if k == "preset"})
    assert spec.focus is not None and spec.focus.weight == weight
    again = ReleaseSpec.model_validate(spec.model_dump(mode="json"))
    assert again.focus == spec.focus


@pytest.mark.parametrize("name", ["privsyn", "adaptive"])
def test_the_preset_gives_scores_more_where_they_are_asked_of_a_focus(name: str) -> None:
    def read_share(focus: dict[str, Any], **more: Any) -> float:
        options = make_spec(**{"focus": focus, "mechanism": name, **more}).mechanism
        return float(getattr(options, "split").selection)  # noqa: B009 - of the two mechanisms that have it

    own = {"one_way": 0.3, "selection": 0.02, "measurement": 0.68}
    focus = {"columns": ["income"]}
    assert read_share(focus) == 0.06
    assert read_share(focus, mechanism={"name": name, "split": {"trends": 0.1}}) == 0.06
    assert read_share(focus, mechanism={"name": name, "split": own}) == 0.02
    assert read_share({**focus, "scores": False}) == read_share(focus, preset="0.3") == 0.02


def test_sets_that_cannot_be_measured_are_refused_in_a_sentence() -> None:
    many = {**COLUMNS, "spent": COLUMNS["income"]}
    columns = [name for name in many if name != "caseid"]
    assert make_spec(many, workload=[{"columns": columns}]).measured_sets == ()
    with pytest.raises(ValidationError, match="6 columns are too many to be measured together"):
        make_spec(many, workload=[{"columns": columns, "measured": True}])
    gum = {"name": "privsyn", "synthesis": {"method": "gum"}}
    with pytest.raises(ValidationError, match="only for rows made by sweeps"):
        make_spec(workload=[{"columns": SET, "measured": True}], mechanism=gum)


@pytest.mark.parametrize(
    ("text", "of", "by"),
    [
        ('"a b"', "", ("a b",)),
        ("`a b`, sex", "", ("a b", "sex")),
        ("'a, b', \"c where d\"", "", ("a, b", "c where d")),
        ('mean("a b") by "c d" where x == "NY"', '"a b"', ("c d",)),
    ],
)
def test_names_stand_in_backticks_or_quotation_marks(text: str, of: str, by: tuple[str, ...]) -> None:
    question = parse_question(text)
    assert (question.of, question.by) == (of, by)
    assert parse_names('"a b"') == parse_names("'a b'") == parse_names("`a b`") == parse_names("a b") == ("a b",)


@pytest.mark.parametrize(
    ("text", "only_names", "parts"),
    [
        ("wage ~ age + sex", True, ("wage", ("age", "sex"))),
        ("it's ~ don't", True, ("it's", ("don't",))),
        ("a( ~ 5' + b)", True, ("a(", ("5'", "b)"))),
        ("`a ~ b` ~ `c + d`", True, ("`a ~ b`", ("`c + d`",))),
        ("sex == 'a~b' ~ log(x + 1) + y", False, ("sex == 'a~b'", ("log(x + 1)", "y"))),
    ],
)
def test_a_formula_is_split_once(text: str, only_names: bool, parts: tuple[str, tuple[str, ...]]) -> None:
    assert split_formula(text, only_names=only_names) == parts


@pytest.mark.parametrize(
    ("text", "why"), [("wage", "not of the form"), ("a ~", "not of the form"), ("a ~ b + b", "twice")]
)
def test_what_is_no_formula_is_refused(text: str, why: str) -> None:
    with pytest.raises(FieldError, match=why):
        split_formula(text, only_names=True)

"""Targets of the spec, and statements about a person's rows: how they are read, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.question_language import (
    list_measured_summaries,
    parse_names,
    parse_question,
    parse_summary,
    split_formula,
)
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.codecs import plan
from tests.support.examples import choose_example_count
from tests.support.households import make_household_spec
from tests.support.notes import write_section
from tests.support.panels import PANEL_COLUMNS, make_panel, make_panel_spec
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


SIGNS = ["<", "<=", ">", ">=", "==", "!="]


@pytest.mark.parametrize(
    ("text", "function", "of", "sign", "threshold"),
    [
        ("any(job == 'none')", "ever", "job == 'none'", None, 0),
        ("Always(income  > 3)", "always", "income > 3", None, 0),
        ("count((income > 3) or job in ('a', 'b')) >= 2", "count", "income > 3 or job in ['a', 'b']", ">=", 2),
        ('ever(job=="part  time" and `my  col`>3)', "ever", "job == 'part  time' and `my  col` > 3", None, 0),
        ("sum(income) < 1e+3", "sum", "income", "<", 1000),
        ("sum(income) < -1.5", "sum", "income", "<", -1.5),
    ],
)
def test_statements_are_read(text: str, function: str, of: str, sign: str | None, threshold: float) -> None:
    found = parse_summary(text)
    assert found is not None
    assert (found.function, found.of, found.sign, found.threshold) == (function, of, sign, threshold)


@pytest.mark.parametrize("text", ["job == 'none'", "median(income) > 3", "ever job"])
def test_what_is_no_statement_about_a_person(text: str) -> None:
    assert parse_summary(text) is None


@pytest.mark.parametrize(
    "text", ["count(job == 'none')", "ever(a > 1) and (b > 2)", "ever(job == 'none') > 1", "sum(income) > ..."]
)
def test_half_a_statement_is_refused(text: str) -> None:
    with pytest.raises(FieldError):
        parse_summary(text)


@given(
    sign=st.sampled_from(SIGNS),
    threshold=st.sampled_from([-1.0, 0.0, 0.5, 2.0, 2.5, 5.0, 9.0]),
    function=st.sampled_from(["count", "sum"]),
)
@settings(max_examples=choose_example_count(60), deadline=None)
def test_codes_hold_what_figures_do(sign: str, threshold: float, function: str) -> None:
    statement = parse_summary(f"{function}(income{' > 1' if function == 'count' else ''}) {sign} {threshold}")
    assert statement is not None
    (measured,) = list_measured_summaries([statement], 5)
    holds = statement.find_codes(measured.cuts, 5)
    assert holds is not None
    figures = np.arange(6.0) if function == "count" else np.array([-3.0, -1.0, 0.0, 0.5, 2.0, 2.1, 2.5, 8.0, 9.0])
    codes = np.searchsorted(measured.cuts, figures, side="right")
    assert holds[codes].tolist() == pd.DataFrame({"x": figures}).eval(f"x {sign} {threshold}").tolist()


def test_another_threshold_is_not_decided_by_the_cuts_of_one() -> None:
    one, other = parse_summary("sum(income) > 10"), parse_summary("sum(income) > 20")
    assert one is not None and other is not None
    (alone,) = list_measured_summaries([one], 5)
    assert other.find_codes(alone.cuts, 5) is None
    (both,) = list_measured_summaries([one, other], 5)
    assert other.find_codes(both.cuts, 5) is not None


def test_figures_are_those_of_a_person_s_rows() -> None:
    """Against pandas, person by person."""
    statements = [
        "ever(job == 'none')",
        "always(income > 20)",
        "count(job == 'none') > 2",
        "spells(job == 'full') > 1",
        "sum(income) >= 100",
        "change(income) < 0",
    ]
    made = plan(make_panel_spec(workload=[{"question": f"share({text})"} for text in statements]))
    rows = make_panel(60).to_pandas().sort_values(["pid", "year"])
    table = {name: pa.array(rows[name]) for name in ("job", "income")}
    first = rows["pid"].ne(rows["pid"].shift()).to_numpy()
    found = {c.measured.about.function: c.compute(c.book.read_table(table), first) for c in made.summaries}
    of = rows.groupby("pid", sort=False)
    full = rows["job"].eq("full")
    begins = full & (first | ~full.shift(fill_value=False))
    assert found["ever"].tolist() == of["job"].agg(lambda j: int((j == "none").any())).tolist()
    assert found["always"].tolist() == of["income"].agg(lambda i: int((i > 20).all())).tolist()
    assert found["count"].tolist() == np.minimum(of["job"].agg(lambda j: (j == "none").sum()), 5).tolist()
    assert found["spells"].tolist() == begins.groupby(rows["pid"], sort=False).sum().tolist()
    assert found["sum"].tolist() == (of["income"].sum() >= 100).astype(int).tolist()
    less = of["income"].last() - of["income"].first() < 0
    assert (found["change"] == 0).tolist() == less.tolist()


def test_sums_of_decimals_are_compared_as_decimals() -> None:
    """In binary 37.3 - 36.2 is less than 1.1, and .1 + .2 more than .3."""
    questions = ["share(change(income) == 1.1)", "share(sum(income) > 0.3)"]
    made = plan(make_panel_spec(workload=[{"question": text} for text in questions]))
    table = {"income": pa.array([36.2, 37.3, 0.1, 0.2, 0.1, 0.3])}
    first = np.array([True, False] * 3)
    found = [codec.compute(codec.book.read_table(table), first) for codec in made.summaries]
    assert [codes.tolist() for codes in found] == [[1, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize(
    ("changes", "question", "words"),
    [
        ({"order": None, "constant": [], "with_order": []}, "share(ever(job == 'none'))", "does not link rows"),
        ({}, "share(ever(job == 'none')) by job", "'job' may differ between rows of one person"),
        ({}, "share(ever(jub == 'none'))", "'jub', which is not a released column"),
        ({}, "share(sum(job) > 3)", "is of numbers"),
        ({}, "share(count(job == 'none'))", "is a number"),
        ({}, "count persons where job == 'none'", "says nothing of a person's rows together"),
        ({}, "share(ever(job == 'none')) where sex == 'f'", "cannot have a further condition"),
        ({}, "share(ever(job == 'nnoe'))", "'nnoe' is not one of the values of 'job'"),
        ({}, "share(ever(previous.job == 'none'))", "names another row"),
        ({}, "share(not ever(job == 'none'))", "`not` cannot stand before"),
        ({}, "count persons where ever(job == 'none') by sex", "has `by` after `where`"),
    ],
)
def test_questions_that_rows_cannot_answer_are_refused(changes: dict[str, Any], question: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        make_panel_spec(workload=[{"question": question}], **changes)


def test_a_question_about_persons_that_is_not_measured_is_refused() -> None:
    with pytest.raises(ValidationError, match="about several rows but not measured"):
        make_panel_spec(workload=[{"question": "share(ever(job == 'none'))", "measured": False}])


def test_one_figure_in_two_spellings_is_measured_once() -> None:
    questions = ["share(ever(job=='none')) by sex", 'count persons by age_group where any((job == "none"))']
    columns = {**PANEL_COLUMNS, "age_group": PANEL_COLUMNS["sex"]}
    asked = [{"question": text} for text in questions]
    made = plan(make_panel_spec(columns=columns, constant=["sex", "age_group"], workload=asked))
    assert [codec.attribute for codec in made.summaries] == ["ever(job == 'none')"]
    assert len(made.person_groups) == 2


def test_more_spells_than_rows_have_are_known_to_be_none() -> None:
    statement = parse_summary("spells(job == 'none') > 4")
    assert statement is not None
    (measured,) = list_measured_summaries([statement], 5)
    holds = statement.find_codes(measured.cuts, 5)
    assert holds is not None and not holds.any()


def test_members_of_a_household_have_no_order_to_speak_of() -> None:
    with pytest.raises(ValidationError, match="follows from the order of rows"):
        make_household_spec(workload=[{"question": "share(change(income) > 0)"}])
    made = plan(make_household_spec(workload=[{"question": "share(ever(age < 18)) by region"}]))
    assert made.person_groups == (("region", "ever(age < 18)"),)

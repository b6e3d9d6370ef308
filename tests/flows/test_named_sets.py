"""Named sets in a release: their entries in the ledger, their files, answers from them, further looks at them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.answers.questions import Questions, answer
from privsyn.api.after_release import rerun
from privsyn.api.check import check
from privsyn.api.ledger import LedgerView
from privsyn.api.open_release import open_release
from privsyn.api.release import improve
from privsyn.base.settings import Settings
from privsyn.data_contracts.focus import parse_conditions
from privsyn.data_contracts.receipts import sum_rho
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.engine.step import get_step, release_steps, say
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs.encoding_plan import list_asked_thresholds
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.merged_codes import tell_codes_apart
from privsyn.tasks.estimation.noisy import read_receipts
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from tests.support import answered
from tests.support.kept import Kept
from tests.support.notes import write_section
from tests.support.releases import release_in_process
from tests.support.specs import changed, make_spec, people

NAMED = [{"columns": ["age", "region", "happy"]}, {"columns": ["income", "happy"], "weight": 2}]


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    return make_spec(data=kept.begin_with(monkeypatch, people(2_000)), synthesis={"sweeps": 1}, workload=NAMED)


def test_a_release_counts_each_named_set_pays_for_it_and_can_be_improved(kept: Kept, spec: ReleaseSpec) -> None:
    first = str(kept.once(lambda: release_in_process(spec, Settings()).run))
    entries = [e for e in Ledger(Settings().ledger).entries("people") if e.event == "reserve"]
    assert "measure_sets" in {e.step for e in entries}
    released = open_release(first)
    merges = released.marginals["merges"].to_pandas()
    asked = read_receipts(pq.read_table(released.folder / "marginals/sets_receipts.parquet"))
    assert [q.attributes for q in asked] == [("age", "region", "happy"), ("income", "happy")]
    sizes = merges.groupby(["set", "attribute"]).merged.nunique().groupby("set").prod()
    assert [q.cells for q in asked] == sizes.tolist()
    step = get_step(release_steps(build_steps(Request(spec))), "measure_sets")
    assert step.rho(Request(spec)) * Fraction(999, 1000) < sum_rho(asked) <= step.rho(Request(spec))
    assert "counted together" in released.note
    assert rerun(released).agrees
    better = improve(first, 0.5)
    assert "measure_sets_2" in better.drawn
    assert rerun(better).agrees and not LedgerView(Settings()).verify().problems


def test_a_release_with_a_focus_scores_triples_pays_for_them_and_is_made_again(kept: Kept, spec: ReleaseSpec) -> None:
    spec = changed(spec, workload=[], focus={"columns": ["happy"]})
    released = open_release(release_in_process(spec, Settings()).run)
    asked = read_receipts(pq.read_table(released.folder / "marginals/triples_receipts.parquet"))
    assert {len(q.attributes) for q in asked} == {3} and all("happy" in q.attributes for q in asked)
    step = get_step(release_steps(build_steps(Request(spec))), "triple_scores")
    assert step.rho(Request(spec)) * Fraction(999, 1000) < sum_rho(asked) <= step.rho(Request(spec))
    assert "two columns together predict one in focus" in released.note
    assert rerun(released).agrees and not LedgerView(Settings()).verify().problems
    assert len(open_release(released.folder).count("happy", where="age >= 40")) == 2


def test_codes_follow_named_sets_where_their_columns_have_no_bins_and_nowhere_else() -> None:
    wide = {"kind": "integer", "min": 0, "max": 9_999}
    binned = Request(make_spec(workload=NAMED[1:]))
    opened = Request(make_spec(columns={**binned.spec.public()["columns"], "income": wide}, workload=NAMED[1:]))
    without = Request(opened.spec.model_copy(update={"workload": ()}))
    requests = (binned, opened, without)
    steps = [get_step(build_steps(request), "compress_domain") for request in requests]
    said = ["columns of named sets have codes" in say(s.words, r) for s, r in zip(steps, requests, strict=True)]
    assert said == [False, True, False]
    assert "rho" in steps[1].build_key(opened) and KnowledgePart.TARGETS in steps[1].reads
    assert steps[2].run is COMPRESS_DOMAIN.run and "rho" not in steps[2].build_key(without)


@pytest.mark.parametrize("without", [{"preset": "0.3"}, {"workload": [{**NAMED[0], "measured": False}]}])
def test_a_set_is_not_measured_where_the_spec_says_so_or_has_the_defaults_of_before(without: dict) -> None:
    request = Request(make_spec(**{"workload": NAMED[:1], **without}))
    assert "measure_sets" not in {step.name for step in build_steps(request)}
    assert not request.spec.public()["workload"][0].get("measured")


@pytest.mark.slow
def test_answers_about_a_set_are_measured_and_near_the_truth() -> None:
    rows = answered.table(20_000)
    rows = rows.append_column("odd", pa.array(parity_of(rows)))
    columns = {**answered.COLUMNS, "odd": {"kind": "boolean"}}
    asked = make_spec(
        columns,
        privacy={"epsilon": 1.0, "delta": 1e-9},
        synthesis={"sweeps": 3},
        workload=[{"columns": ["region", "happy", "odd"]}],
    )
    asks = Questions()
    asks._counts = answered.released(rows, asked, 0)  # type: ignore[misc]
    found = asks.count("region", "odd", where="happy")
    assert (found.source == "measured").all()
    table = rows.to_pandas()
    true = table[table.happy].groupby(["region", "odd"]).size()
    for _, row in found.iterrows():
        if row.region in ("south", "north", "east"):
            truth = true.get((row.region, row.odd == "true"), 0)
            assert abs(row.estimate - truth) < 5 * row.std_error + 1
    made = asks._counts.table.to_pandas()
    assert (parity_of(made) == made.odd).mean() > 0.9
    assert len(asks.regress("odd ~ region + happy")) > 2


def parity_of(rows: pa.Table) -> np.ndarray:
    """Whether exactly one of two statements about a row is true: pairs tell little of it, and three columns all."""
    south, happy = np.asarray(rows["region"]) == "south", np.asarray(rows["happy"]).astype(bool)
    return south ^ happy


def test_the_check_says_cells_and_error_of_each_set() -> None:
    report = check(make_spec(workload=NAMED))
    assert {line.columns for line in report.sets} == {("age", "region", "happy"), ("income", "happy")}
    few, many = (next(s for s in report.sets if s.rows == n and len(s.columns) == 3) for n in (1_000, 100_000))
    assert np.prod(few.cells) < np.prod(many.cells) and many.error < few.error
    assert [n.queries for n in report.noise if "named sets" in n.what] == [2]
    assert "sets" not in check(make_spec()).as_json()


QUESTION = "region, happy where age < 33 or income >= 47_500"


def count_by_hand(table: pd.DataFrame) -> pd.Series:
    return table[(table.age < 33) | (table.income >= 47_500)].groupby(["region", "happy"]).size()


def share_by_hand(table: pd.DataFrame) -> pd.Series:
    return table[table.age < 61].assign(high=table.income >= 47_500).groupby("happy").high.mean()


SHARE = "share(income >= 47_500) by happy where age < 61"


@pytest.mark.parametrize(
    ("mechanism", "question", "truth"),
    [
        ("privsyn", QUESTION, count_by_hand),
        ("adaptive", QUESTION, count_by_hand),
        ("aim", SHARE, share_by_hand),
        pytest.param("privsyn", SHARE, share_by_hand, marks=pytest.mark.slow),
        pytest.param("adaptive", SHARE, share_by_hand, marks=pytest.mark.slow),
        pytest.param("aim", QUESTION, count_by_hand, marks=pytest.mark.slow),
    ],
)
def test_the_cells_of_a_named_question_are_measured_and_answer_it(
    mechanism: str, question: str, truth: Callable[[pd.DataFrame], pd.Series]
) -> None:
    rows = answered.table(5_000)
    asked = answered.spec(1.0, workload=[{"question": question}], mechanism=mechanism)
    asks, plain = Questions(), Questions()
    asks._counts = answered.released(rows, asked, 0)  # type: ignore[misc]
    plain._counts = answered.released(rows, answered.spec(1.0, mechanism=mechanism), 0)  # type: ignore[misc]
    found, without = answer(asks, question), answer(plain, question)
    assert (found.source == "measured").all() and (without.source != "measured").all()
    true = truth(rows.to_pandas())
    for _, row in found.iterrows():
        key = tuple({"true": True, "false": False}.get(row[name], row[name]) for name in true.index.names)
        if key[0] != "other":
            assert abs(row.estimate - true.get(key if len(key) > 1 else key[0], 0)) < 4.5 * row.std_error + 1e-9
    assert found.std_error.max() < 0.5 * (without.high - without.low).max()


def test_a_named_question_gives_its_columns_edges_and_is_in_check_and_note() -> None:
    asked = make_spec(workload=[{"question": "region, happy where age < 31"}])
    assert asked.workload[0].columns == ("region", "happy", "age")
    assert make_spec(workload=asked.public()["workload"]).workload == asked.workload
    assert [31 in list_bin_starts(spec) for spec in (asked, make_spec())] == [True, False]
    keys = [Request(spec).public.key({KnowledgePart.CODES}) for spec in (asked, make_spec())]
    assert keys == [{"asked": {"age": (31.0,)}}, {}]  # rows are encoded by the edge
    lines = check(asked)
    assert {line.cells for line in lines.sets} == {(2, 4, 2)}
    named = "age, region, happy: the cells of region, happy where age < 31, for which bins end in age at 31"
    assert {row[0] for row in lines.set_rows()} == {named}
    assert "0%" not in {row[-1] for row in lines.set_rows()}
    assert "the cells of `region, happy where age < 31`" in write_section("targets", asked)


NUMBER = {"kind": "number", "min": 0, "max": 1}
MOMENT = {"kind": "datetime", "min": "2000-01-01T00:00:00", "max": "2009-12-31T00:00:00"}
ORDERED = {
    "open": (NUMBER, "0.6"),
    "step": ({**NUMBER, "step": 0.2}, "0.6"),
    "bins": ({**NUMBER, "bins": 10}, "0.6"),
    "exact": ({**NUMBER, "exact": [0.6]}, "0.6"),
    "decimals": ({**NUMBER, "decimals": 2}, "0.6"),
    "more decimals": ({**NUMBER, "decimals": 1}, "0.605"),
    "integer": ({"kind": "integer", "min": 0, "max": 1_000}, "600"),
    "moment": (MOMENT, "'2005-06-15T12:30:00'"),
    "date": ({"kind": "date", "min": "2000-01-01", "max": "2009-12-31"}, "'2005-06-15'"),
    "time": ({"kind": "time"}, "'12:30'"),
}


@pytest.mark.parametrize("name", list(ORDERED))
def test_a_condition_about_an_ordered_column_is_true_of_whole_cells(name: str) -> None:
    field, value = ORDERED[name]
    columns = {"x": field, "y": {"kind": "boolean"}}
    for sign, edges in {"<": 1, "<=": 1, ">": 1, ">=": 1, "==": 2, "!=": 2}.items():
        asked = make_spec(columns, workload=[{"question": f"y where x {sign} {value}"}])
        (codec,) = (c for c in Request(asked).encoding.codecs if c.attribute == "x")
        (node,) = parse_conditions(asked.workload[0], asked.released_columns)
        assert set(tell_codes_apart(codec, node)) == {0.0, 1.0}, sign
        assert len(list_asked_thresholds(asked)["x"]) == edges


@pytest.mark.parametrize("name", ["decimals", "moment"])
def test_a_question_with_a_condition_about_rounded_values_is_measured(name: str) -> None:
    field, value = ORDERED[name]
    rng = np.random.default_rng(0)
    x = rng.random(1_000).round(2)
    values = x if name == "decimals" else np.datetime64("2000-01-01", "us") + (x * 3e8).astype("timedelta64[s]")
    rows = pa.table({"x": values, "y": rng.random(1_000) < x})
    questions = [f"y where x {sign} {value}" for sign in ("<=", ">=")]
    asked = make_spec({"x": field, "y": {"kind": "boolean"}}, workload=[{"question": q} for q in questions])
    asks = Questions()
    asks._counts = answered.released(rows, asked, 0)  # type: ignore[misc]
    assert all((answer(asks, question).source == "measured").all() for question in questions)


def test_a_condition_inside_cells_is_a_warning() -> None:
    asked = ["happy where income * 2 < 71_001", "happy where income < 35_001"]
    warnings = check(make_spec(workload=[{"question": text} for text in asked])).warnings
    (found,) = (text for text in warnings if "lie evenly" in text)
    assert found.startswith("workload[0].question: its condition holds in a part of 1 cell of income")
    # A condition that tells no rows apart is a warning.
    asked = ["region, happy where age < 31", "happy where income >= 0", "happy where region == 'nowhere'"]
    warnings = check(make_spec(workload=[{"question": text} for text in asked])).warnings
    found = [text for text in warnings if "tells no rows apart" in text]
    assert [text.split(":")[0] for text in found] == ["workload[1].question", "workload[2].question"]
    assert "every value that income" in found[0] and "no value that region" in found[1]


def list_bin_starts(spec: ReleaseSpec) -> set[float]:
    (codec,) = (c for c in Request(spec).encoding.codecs if c.attribute == "age")
    assert isinstance(codec, OrderedCodec)
    fine, first = codec.cells.fine, np.unique(codec.cells.bin_of, return_index=True)[1]
    return {fine[i].low for i in first}

"""Analyses on two tables: figures by hand, what is left out, and how wrong ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from privsyn.base.errors import RequestError
from privsyn.data_contracts.evaluation import Analysis, AnalysisResult
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.analysis_figures import check_analyses, run_analyses
from privsyn.tasks.codecs import plan_every_column
from tests.support.specs import make_spec

COLUMNS: dict[str, Any] = {
    "wage": {"kind": "integer", "min": 0, "max": 1_000, "bins": 10, "nullable": True},
    "sex": {"kind": "categorical", "values": ["f", "m"], "nullable": True},
    "home town": {"kind": "categorical", "values": ["x", "y", "z"]},
    "happy": {"kind": "boolean"},
    "born": {"kind": "date", "min": "1950-01-01", "max": "2000-01-01", "bins": 10},
}
ROWS = 400


@pytest.fixture
def spec() -> ReleaseSpec:
    return make_spec(columns=COLUMNS)


def table(seed: int, *, rows: int = ROWS, towns: str = "xy") -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows, p=[0.6, 0.4])
    wage = np.round(np.exp(5 + 0.5 * (sex == "m") + rng.normal(0, 0.3, rows))).astype(int)
    wage[:10] = 2_000  # outside the bounds: an analysis has it as it is stored
    return pa.RecordBatch.from_pydict(
        {
            "wage": pa.array(wage, mask=np.arange(rows) % 50 == 49),
            "sex": pa.array(sex),
            "home town": pa.array(rng.choice(list(towns), rows)),
            "happy": pa.array(rng.random(rows) < 0.3),
            "born": pa.array(np.full(rows, "1970-01-01", dtype="datetime64[D]")),
        }
    )


def run(spec: ReleaseSpec, real: pa.RecordBatch, made: pa.RecordBatch, **analysis: Any) -> AnalysisResult:
    encoding = plan_every_column(spec, tuple(COLUMNS))
    (found,) = run_analyses([Analysis.model_validate(analysis)], spec, encoding, [real], [made])
    return found


def test_a_regression_of_a_logarithm(spec: ReleaseSpec) -> None:
    """With one column of two values the coefficient is a difference of means, over rows without nulls."""
    real, made = table(1), table(2)
    found = run(spec, real, made, kind="regression", formula="log(wage) ~ sex", where="wage > 0")
    slope = {f.name: f for f in found.figures}["sex[m]"]
    for batch, figure in ((real, slope.real), (made, slope.synthetic)):
        rows = batch.to_pandas().dropna()
        means = np.log(rows["wage"]).groupby(rows["sex"]).mean()
        assert figure == pytest.approx(means["m"] - means["f"])
    assert found.rows_real == ROWS - ROWS // 50
    assert slope.real is not None and slope.synthetic is not None and slope.std_error and slope.apart is not None
    assert slope.apart == pytest.approx((slope.synthetic - slope.real) / slope.std_error)
    assert found.note == "Compared with sex f"


def test_a_condition_before_the_tilde_is_logistic_and_rare_values_are_left_out(spec: ReleaseSpec) -> None:
    real = table(1, towns="xy" * 40 + "z")
    found = run(spec, real, table(2), kind="regression", formula="happy == true ~ `home town` + wage * wage")
    names = [f.name for f in found.figures]
    assert len([n for n in names if n.startswith("home town[")]) == 1 and "R squared" not in names
    assert "wage * wage" in names
    assert "rows of 1 values with fewer than 30 real rows are left out" in found.note


def test_what_the_synthetic_table_does_not_have_is_not_known(spec: ReleaseSpec) -> None:
    found = run(spec, table(1), table(2, towns="x"), kind="regression", formula="wage ~ `home town`")
    figure = next(f for f in found.figures if f.name.startswith("home town["))
    assert figure.real is not None
    assert (figure.synthetic, figure.apart, figure.close) == (None, None, False)


def test_quantiles_by_group(spec: ReleaseSpec) -> None:
    real, made = table(1), table(2)
    found = run(spec, real, made, kind="quantile", column="wage", by=["sex"])
    medians = real.to_pandas().groupby("sex")["wage"].quantile(0.5, interpolation="lower")
    assert {f.name: f.real for f in found.figures} == {"sex=f": medians["f"], "sex=m": medians["m"]}
    assert found.title == "median of wage by sex"


def test_shares_and_their_differences_from_the_largest_group(spec: ReleaseSpec) -> None:
    real = table(1)
    found = run(spec, real, real, kind="share", of="happy", by=["sex"])
    shares = real.to_pandas().groupby("sex")["happy"].mean()
    figures = {f.name: f for f in found.figures}
    assert figures["sex=m minus sex=f"].real == pytest.approx(shares["m"] - shares["f"])
    assert all(f.close and f.real == f.synthetic for f in found.figures)


def test_close_is_15_percent_or_two_standard_errors(spec: ReleaseSpec) -> None:
    real = table(1)
    count = int(real["happy"].to_numpy(zero_copy_only=False).sum())
    for more, close in ((int(0.14 * count), True), (int(0.9 * count), False)):
        happy = pa.array(np.arange(ROWS) < count + more)
        made = real.set_column(real.schema.get_field_index("happy"), "happy", happy)
        (figure,) = run(spec, real, made, kind="share", of="happy").figures
        assert figure.close == close


def test_no_row_that_takes_part_is_told_and_raises_nothing(spec: ReleaseSpec) -> None:
    found = run(spec, table(1), table(2), kind="share", of="happy", where="wage > 1900 and wage < 1950")
    assert (found.figures, found.note) == ((), "No row of one of the tables takes part")
    assert run(spec, table(1), table(2, rows=0), kind="quantile", column="wage").figures == ()


@pytest.mark.parametrize(
    ("analysis", "words"),
    [
        ({"kind": "regression", "formula": "wage ~ agee"}, "analyses[0].formula: `agee` names 'agee', which is not"),
        ({"kind": "regression", "formula": "wage"}, "analyses[0].formula: `wage` is not of the form y ~ a + b."),
        ({"kind": "regression", "formula": "sex ~ wage"}, "analyses[0].formula: `sex` is neither a number nor"),
        ({"kind": "regression", "formula": "wage ~ born"}, "analyses[0].formula: `born` is not a number, condition"),
        ({"kind": "regression", "formula": "wage ~ sex + sex"}, "analyses[0].formula: `wage ~ sex + sex` names one"),
        ({"kind": "regression", "formula": "log(sex) ~ wage"}, "analyses[0].formula: `sex` is not a number"),
        ({"kind": "quantile", "column": "sex"}, "analyses[0].column: `sex` is not a number"),
        ({"kind": "share", "of": "wage"}, "analyses[0].of: `wage` is a number, not a condition"),
        ({"kind": "share", "of": "happy", "by": ["born"]}, "analyses[0].by: `born` is not a number"),
        ({"kind": "share", "of": "happy", "where": "wage"}, "analyses[0].where: `wage` is a number, not a"),
    ],
)
def test_wrong_analyses_in_words(spec: ReleaseSpec, analysis: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_analyses([Analysis.model_validate(analysis)], spec)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("analysis", "words"),
    [
        ({"kind": "quantile"}, "a quantile needs `column`. Add it, such as `column: wage`"),
        ({"kind": "share", "of": "a", "q": 0.1}, "a share has no `q`"),
        ({"kind": "share", "of": "a", "by": ["b", "b"]}, "names one group twice"),
    ],
)
def test_fields_of_another_kind_are_refused(analysis: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Analysis.model_validate(analysis)

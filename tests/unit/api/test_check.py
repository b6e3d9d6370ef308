"""spec check: warnings, predicted noise, and the private fit."""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from privsyn.api.check import CheckReport, check
from privsyn.base.errors import RequestError
from privsyn.cli.spec_command import render_check
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.engine.step import release_steps
from privsyn.pipelines.registry import MECHANISMS, build_steps
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho
from privsyn.tasks.steps.encode import encode
from tests.support.linked_tables import make_tables_spec, make_tree_content
from tests.support.specs import make_spec, mechanism_fields

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 0, "max": 99},
    "state": {"kind": "categorical", "values": ["ny", "ma"]},
    "seen": {"kind": "datetime", "min": "2000-01-01", "max": "2010-01-01", "bins": 32},
    "ok": {"kind": "boolean", "nullable": True},
    "pid": {"kind": "drop"},
}
ROWS = (
    "age,state,seen,ok,pid\n5,ny,2001-01-01,yes,1\n120,[red]x,2020-01-01,,1\n"
    "abc,,2001-01-01,maybe,2\n7,\x1b[31mz,,no,\n"
)


def spec_of(**changes: Any) -> ReleaseSpec:
    promise = {"epsilon": 1, "delta": 1e-9}
    return ReleaseSpec.model_validate(
        {
            "dataset": "t",
            "data": "t",
            "unit": {"person_id": "pid", "max_records": 1},
            "privacy": promise,
            "budget": promise,
            "columns": COLUMNS,
            **changes,
        }
    )


def shown(report: CheckReport, *, terminal: bool = False) -> str:
    out = io.StringIO()
    render_check(report, Console(file=out, width=200, force_terminal=terminal, no_color=True))
    return out.getvalue()


def test_a_number_of_any_precision_is_named(tmp_path: Path) -> None:
    """What the source's type says of it is said, too."""
    wage = {"kind": "number", "min": 0, "max": 9}
    columns = {"wage": wage, "rate": wage, "cents": {**wage, "decimals": 2}, "half": {**wage, "step": 0.5}}
    columns["count"] = wage
    spec = make_spec(columns)
    (sentence,) = [w for w in check(spec).warnings if "decimals" in w]
    assert sentence == (
        "columns.wage, columns.rate, columns.count: without `decimals`, values come out with up to 17 digits, whatever "
        "the source has."
    )
    values = pa.array([Decimal("1.25")], pa.decimal128(5, 2))
    other = {"rate": pa.array([1.25]), "count": pa.array([1], pa.int16())}
    table = pa.table({name: other.get(name, values) for name in columns})
    warnings = check(spec, open_source(table, spec)).warnings
    assert "columns.wage is stored as decimal128(5, 2): write `decimals: 2`." in warnings
    assert "columns.count is stored as int16: write `decimals: 0`." in warnings
    assert not any("rate is stored" in w or "cents is stored" in w or "half is stored" in w for w in warnings)


def test_public_report() -> None:
    report = check(spec_of())
    assert report.warnings == () and report.fit is None
    assert [(c.column, c.kind) for c in report.columns] == [
        ("age", "integer"),
        ("state", "categorical"),
        ("seen", "datetime"),
        ("ok", "boolean"),
    ]
    assert all(1 <= c.bins <= c.codes for c in report.columns)
    text = shown(report)
    assert "PRIVATE" not in text
    for words in (
        "counts of every column on its own",
        "how strongly each pair of columns is related",
        "joint counts of the related columns",
    ):
        assert words in text


def test_what_is_counted_beside_a_column_is_a_line_of_its_own() -> None:
    columns = {**COLUMNS, "born": {"kind": "date", "min": "1900-01-01", "max": "2000-01-01"}}
    pair = {name: {"kind": "integer", "min": 0, "max": 9_999, "unit": "EUR"} for name in ("wages", "income")}
    report = check(spec_of(columns=columns | pair, compare=[["wages", "income"]]))
    kinds = {c.column: c.kind for c in report.columns}
    assert kinds["born (weekday)"] == "calendar" and kinds["wages minus income"] == "difference"
    assert kinds["wages (rounded to)"] == "heaps"
    assert not any("compare:" in w for w in report.warnings)
    (hint,) = [w for w in check(spec_of(columns=COLUMNS | pair)).warnings if "compare:" in w]
    assert "write `compare: [[wages, income]]`" in hint


def test_noise_follows_the_formula() -> None:
    """sigma^2 = k^2 d / (2 rho1), and 3 more if Gaussian: twice the records, twice the noise; more budget, less."""
    equal = {"one_ways": "equal"}
    for accountant, smoothing in (("gaussian", 3), ("tight", 0), ("paper", 0)):
        chosen: dict[str, Any] = {"accountant": accountant, "split": equal, "compression": {"ladder": False}}
        rho = convert_epsilon_to_rho(1.0, 1e-9, accountant) * Fraction(1, 4)  # type: ignore[arg-type]
        base = check(spec_of(**chosen)).noise[0]
        assert base.queries == 4 and base.low == base.high
        assert base.low**2 == pytest.approx(float(4 / (2 * rho)) + smoothing)
        double = check(spec_of(**chosen, unit={"person_id": "pid", "max_records": 2})).noise[0]
        assert double.low**2 - smoothing == pytest.approx(4 * (base.low**2 - smoothing))
        more = {"epsilon": 4, "delta": 1e-9}
        assert check(spec_of(**chosen, privacy=more, budget=more)).noise[0].high < base.low / 2


def test_larger_columns_get_less_noise_a_count() -> None:
    """The default division: in proportion to cells^(2/3), so from the largest column's noise to the smallest's."""
    report = check(spec_of(compression={"ladder": False}))
    parts = [c.codes ** (2 / 3) for c in report.columns]
    rho = float(convert_epsilon_to_rho(1.0, 1e-9, "tight")) / 4
    sigmas = sorted(math.sqrt(sum(parts) / (part * 2 * rho)) for part in parts)
    line = report.noise[0]
    assert (line.low, line.high) == (pytest.approx(sigmas[0]), pytest.approx(sigmas[-1]))
    assert line.low < line.high and f"{line.low:,.1f} to {line.high:,.1f}" in shown(report)


def test_every_look_of_every_mechanism_has_a_line() -> None:
    for mechanism in MECHANISMS:
        spec = spec_of(**mechanism_fields(mechanism, group="state"))
        looks = [step.look.words for step in release_steps(build_steps(Request(spec)))]
        lines = [line.what.removesuffix(", if this many are counted") for line in check(spec).noise]
        lines = [line.removesuffix(" (free if no value is frequent)") for line in lines]
        assert list(dict.fromkeys(lines)) == looks


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy": {"epsilon": 11, "delta": 1e-9}, "budget": {"epsilon": 20, "delta": 1e-9}}, "protects little"),
        ({"privacy": {"epsilon": 1, "delta": 1e-4}, "budget": {"epsilon": 1, "delta": 1e-4}}, "one over the number"),
        ({"privacy": {"epsilon": 2, "delta": 1e-9}}, "refuse"),
        ({"privacy": {"epsilon": 0.99, "delta": 1e-6}, "budget": {"epsilon": 1, "delta": 1e-12}}, "refuse"),
        ({"unit": {"records_per_person": 5}}, "5 times the noise"),
        ({"unit": {"records_per_person": 1}}, "two rows"),
        ({"synthesis": {"rows": 1000}}, "row count"),
        ({"csv": {"line_breaks": True}}, "quotation mark"),
        (
            {"columns": {**COLUMNS, "zip": {"kind": "categorical", "values": [str(i) for i in range(20_000)]}}},
            "20,001 codes",
        ),
    ],
)
def test_warnings(changes: dict[str, Any], words: str) -> None:
    report = check(spec_of(**changes))
    assert len(report.warnings) == 1 and words in report.warnings[0]
    assert words in shown(report)


def test_texts_of_csv_files_that_mean_null_are_pointed_out_beside_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": [5, -9]}), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("age\n5\n-9\n", encoding="utf-8")
    spec = make_spec({"age": COLUMNS["age"]}, null_values=["", "-9"])
    stored = [check(spec, open_source(tmp_path / name, spec)).warnings for name in ("t.parquet", "t.csv")]
    assert [any("null_values" in warning for warning in found) for found in stored] == [True, False]


def test_the_budget_is_compared_as_the_ledger_does() -> None:
    """In zCDP: a larger epsilon at a far smaller delta can cost less, and is not warned about."""
    cheap = check(spec_of(privacy={"epsilon": 1.01, "delta": 1e-15}, budget={"epsilon": 1, "delta": 1e-6}))
    assert cheap.warnings == ()


@pytest.mark.parametrize("epsilon", [1e-300, 1e-100])
@pytest.mark.parametrize("field", ["privacy", "budget"])
def test_an_epsilon_that_cannot_be_accounted_is_refused_by_name(field: str, epsilon: float) -> None:
    with pytest.raises(RequestError, match="cannot be accounted") as refused:
        check(spec_of(**{field: {"epsilon": epsilon, "delta": 1e-9}}))
    assert (refused.value.field, refused.value.exit_code) == (field, 2)


def test_a_rule_that_no_row_can_keep_is_refused_as_a_release_does() -> None:
    with pytest.raises(RequestError, match="no row was found that keeps it") as refused:
        check(spec_of(rules=[{"never": "age >= 0"}]))
    assert (refused.value.field, refused.value.exit_code) == ("rules[0]", 2)


def test_a_tiny_epsilon_is_accounted_and_its_noise_shown() -> None:
    assert check(spec_of(privacy={"epsilon": 1e-17, "delta": 1e-9})).noise[0].low > 1e8


@pytest.mark.parametrize("start", [2**53 + 1, 10**19])
def test_cut_counts_what_encode_leaves_out(tmp_path: Path, start: int) -> None:
    """The same people as privsyn.tasks.steps.encode: exact identifiers, and one person across types."""
    spec = spec_of(columns={"ok": {"kind": "boolean"}, "pid": {"kind": "drop"}})
    people = [Decimal(start + i // 2) for i in range(20)] + [None]
    folder = tmp_path / "t"
    folder.mkdir()
    for i, type_ in enumerate([pa.decimal128(38, 0), pa.decimal128(38, 2)]):
        pq.write_table(pa.table({"ok": [True] * 21, "pid": pa.array(people, type_)}), folder / f"{i}.parquet")
    source = open_source(folder, spec)
    repairs = Repairs()
    kept = sum(b.num_rows for b in encode(source.batches, plan(spec), spec.unit, repairs))
    fit = check(spec, source).fit
    assert fit is not None and fit.rows == 42 and kept == 10
    assert fit.cut == repairs.counts["pid", "left out"] == 32


def test_examples_of_moments_without_a_known_zone(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    ticks = pa.array([0, 2**62], pa.int64())
    pq.write_table(pa.table({"a": ticks.view(pa.timestamp("us", "No/Where"))}), path)
    spec = spec_of(unit={"records_per_person": 1}, columns={"a": {"kind": "categorical", "values": ["x"]}})
    fit = check(spec, open_source(path, spec)).fit
    assert fit is not None and len(fit.columns[0].examples) == 2


def test_fit_is_private_and_right(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(ROWS)
    spec = spec_of()
    before = sorted(tmp_path.iterdir())
    report = check(spec, open_source(path, spec))
    assert report.fit is not None and report.fit.rows == 4 and report.fit.cut == 2
    fits = {f.column: f for f in report.fit.columns}
    assert fits["age"].repairs == {"above max": 1, "unparseable": 1} and fits["age"].examples == ["abc"]
    assert fits["state"].repairs["unlisted"] == 2 and fits["state"].nulls == 1 and "[red]x" in fits["state"].examples
    assert fits["ok"].repairs == {"unparseable": 1} and fits["ok"].nulls == 1
    assert fits["seen"].repairs["above max"] == 1 and fits["seen"].stored == "text"
    text = shown(report, terminal=True)
    assert "PRIVATE - do not share" in text and "[red]x" in text and "\x1b[31m" not in text
    piped = shown(report)
    assert "PRIVATE - do not share" in piped and "[red]x" not in piped and "abc" not in piped
    assert sorted(tmp_path.iterdir()) == before


def test_at_most_five_examples(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "\n".join(f"v{i}" * 30 for i in range(50)))
    spec = spec_of(unit={"records_per_person": 1}, columns={"a": {"kind": "categorical", "values": ["x"]}})
    fit = check(spec, open_source(path, spec)).fit
    assert fit is not None and len(fit.columns[0].examples) == 5 and all(len(e) <= 40 for e in fit.columns[0].examples)


def test_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(ROWS.partition("\n")[0])
    spec = spec_of()
    report = check(spec, open_source(path, spec))
    assert report.fit is not None and report.fit.rows == 0 and "none" in shown(report)


def test_what_share_several_caps_drop_is_said_in_private() -> None:
    """Four rows of one person, two of another, one of nobody."""
    table = pa.table({"age": [1] * 7, "pid": ["a"] * 4 + ["b"] * 2 + [None]})
    columns = {"age": COLUMNS["age"], "pid": COLUMNS["pid"]}
    spec = spec_of(columns=columns, unit={"person_id": "pid", "max_records": 2})
    report = check(spec, open_source(table, spec))
    assert report.fit is not None and report.fit.cut == 3
    assert {cap: report.fit.cut_by[cap] for cap in (1, 2, 3, 5)} == {1: 5, 2: 3, 3: 2, 5: 1}
    assert "1: 5 (71.4%), 2: 3 (42.9%), 3: 2 (28.6%)" in " ".join(shown(report).replace("│", " ").split())


def test_records_that_cannot_be_read_are_counted_in_private(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(ROWS.encode() + b'1,"ny\n1,2\n5,\xff,2001-01-01,yes,9\n')
    report = check(spec_of(), open_source(tmp_path / "t.csv", spec_of()))
    assert report.fit is not None and (report.fit.rows, report.fit.unread) == (5, 2)
    assert report.fit.columns[1].repairs["not UTF-8"] == 1
    assert "2 more records cannot be read" in shown(report)
    assert "not UTF-8: 1 (20.0%)" in shown(report)


def test_the_report_as_json_has_everything_and_says_what_is_private(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(ROWS)
    report = check(spec_of(), open_source(path, spec_of()))
    shown = json.loads(json.dumps(report.as_json()))
    assert [c["column"] for c in shown["columns"]] == ["age", "state", "seen", "ok"]
    assert len(shown["noise"]) == len(report.noise) and shown["warnings"] == list(report.warnings)
    assert (shown["fit"]["private"], shown["fit"]["rows"]) == (True, 4)
    assert shown["fit"]["columns"][0]["repairs"] == {"above max": 1, "unparseable": 1}
    assert check(spec_of()).as_json()["fit"] is None


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"kind": "number", "min": 0, "max": 90, "bins": 9}, True),
        ({"kind": "number", "min": 0, "max": 90}, False),  # 0 has a cell of its own
        ({"kind": "integer", "min": 0, "max": 90, "edges": [0, 10, 90]}, True),
        ({"kind": "integer", "min": 0, "max": 90, "edges": [0, 10, 90], "exact": [0]}, False),
        ({"kind": "integer", "min": 0, "max": 90, "edges": [0, 1, 90]}, False),
        ({"kind": "number", "min": 1, "max": 90}, False),
    ],
)
def test_a_first_edge_of_zero_without_an_exact_zero_is_pointed_out(column: dict[str, Any], said: bool) -> None:
    warnings = check(make_spec({"pay": column})).warnings
    assert any("columns.pay begins at 0 without `exact: [0]`" in warning for warning in warnings) == said


def test_a_wide_table_is_told_how_many_of_its_pairs_are_scored_and_which() -> None:
    wide = {f"q{i}_{j}": {"kind": "boolean"} for i in range(31) for j in range(10)}
    (told,) = (w for w in check(make_spec(columns=wide)).warnings if "scored" in w)
    assert "of 47,895 pairs of 310 columns about 44,850" in told and "q12_1" in told and "`focus`" in told
    narrow = dict(list(wide.items())[:300])
    assert not any("scored" in w for w in check(make_spec(columns=narrow)).warnings)
    alone = make_spec(columns=wide, mechanism={"name": "independent"})
    assert not any("scored" in w for w in check(alone).warnings)


def test_further_tables_are_named_in_warnings_and_their_sets_are_predicted() -> None:
    columns = {
        "paid": {"kind": "number", "min": 0, "max": 10, "edges": [0, 1, 10]},
        "dose": {"kind": "integer", "min": 0, "max": 2},
        "note": {"kind": "boolean", "measured": False},
    }
    workload = [{"columns": ["dose", "job"]}, {"question": "share(dose == 9) by sex"}]
    tables = make_tree_content(columns=columns, order="dose", workload=workload)
    report = check(make_tables_spec(tables, workload=[{"columns": ["age", "income"]}]))
    found = "\n".join(report.warnings)
    assert "tables.drugs.columns.paid begins at 0" in found and "tables.drugs.columns.paid: without `decimals`" in found
    assert "tables.drugs.columns.note is not measured" in found
    assert "tables.drugs.workload[1].question: no value that dose can have fulfils its condition" in found
    named = ["age, income", "dose, job (of drugs)", "dose, sex: the cells of share(dose == 9) by sex (of drugs)"]
    assert [row[0] for row in report.set_rows()[::3]] == named
    counted = {line.what: (line.queries, line.low) for line in report.noise if "named sets" in line.what}
    assert [many for many, _ in counted.values()] == [1, 2]
    assert len({s.sd for s in report.sets if s.table}) == 1


@pytest.mark.parametrize(("mechanism", "share"), [("privsyn", "2%"), ("aim", "7%"), ("mst", "33%")])
def test_a_share_of_the_budget_that_nothing_can_spend_is_said(mechanism: str, share: str) -> None:
    columns = {"x": {"kind": "boolean"}, "y": {"kind": "boolean"}}
    idle, busy = (
        check(make_spec({name: columns[name] for name in names}, mechanism={"name": mechanism}))
        for names in ("x", "xy")
    )
    assert [f"so {share} of the budget" in warning for warning in idle.warnings] == [True, False]
    assert not any("each pair" in line.what for line in idle.noise)
    assert not any("of the budget" in warning for warning in busy.warnings)

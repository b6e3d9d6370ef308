"""spec check: warnings, predicted noise, and the private fit."""

from __future__ import annotations

import io
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from data_contracts.spec import ReleaseSpec
from flows.errors import RequestError
from flows.source import Source
from flows.spec.check import CheckReport, check, render
from tasks.codecs import plan
from tasks.encode import Repairs, encode
from tasks.privacy.accountant import rho_for

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 0, "max": 99},
    "state": {"kind": "categorical", "values": ["ny", "ma"]},
    "seen": {"kind": "datetime", "min": "2000-01-01", "max": "2010-01-01"},
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


def shown(report: CheckReport) -> str:
    out = io.StringIO()
    render(report, Console(file=out, width=200))
    return out.getvalue()


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
    assert "PRIVATE" not in text and "one-way marginals" in text


def test_noise_follows_the_formula() -> None:
    """sigma^2 = k^2 d / (2 rho1), and 3 more if Gaussian: twice the records, twice the noise; more budget, less."""
    for accountant, smoothing in (("gaussian", 3), ("tight", 0), ("paper", 0)):
        chosen: dict[str, Any] = {"accountant": accountant}
        rho = rho_for(1.0, 1e-9, accountant) * Fraction(1, 4)  # type: ignore[arg-type]
        base = check(spec_of(**chosen)).noise[0]
        assert base.queries == 4 and base.sigma**2 == pytest.approx(float(4 / (2 * rho)) + smoothing)
        double = check(spec_of(**chosen, unit={"person_id": "pid", "max_records": 2})).noise[0]
        assert double.sigma**2 - smoothing == pytest.approx(4 * (base.sigma**2 - smoothing))
        more = {"epsilon": 4, "delta": 1e-9}
        assert check(spec_of(**chosen, privacy=more, budget=more)).noise[0].sigma < base.sigma / 2


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


def test_a_tiny_epsilon_is_accounted_and_its_noise_shown() -> None:
    assert check(spec_of(privacy={"epsilon": 1e-17, "delta": 1e-9})).noise[0].sigma > 1e8


@pytest.mark.parametrize("start", [2**53 + 1, 10**19])
def test_cut_counts_what_encode_leaves_out(tmp_path: Path, start: int) -> None:
    """The same people as tasks.encode: exact identifiers, and one person across types."""
    spec = spec_of(columns={"ok": {"kind": "boolean"}, "pid": {"kind": "drop"}})
    people = [Decimal(start + i // 2) for i in range(20)] + [None]
    folder = tmp_path / "t"
    folder.mkdir()
    for i, type_ in enumerate([pa.decimal128(38, 0), pa.decimal128(38, 2)]):
        pq.write_table(pa.table({"ok": [True] * 21, "pid": pa.array(people, type_)}), folder / f"{i}.parquet")
    source = Source.open(folder, spec)
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
    fit = check(spec, Source.open(path, spec)).fit
    assert fit is not None and len(fit.columns[0].examples) == 2


def test_fit_is_private_and_right(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(ROWS)
    spec = spec_of()
    before = sorted(tmp_path.iterdir())
    report = check(spec, Source.open(path, spec))
    assert report.fit is not None and report.fit.rows == 4 and report.fit.cut == 2
    fits = {f.column: f for f in report.fit.columns}
    assert fits["age"].repairs == {"above max": 1, "unparseable": 1} and fits["age"].examples == ["abc"]
    assert fits["state"].repairs["unlisted"] == 2 and fits["state"].nulls == 1 and "[red]x" in fits["state"].examples
    assert fits["ok"].repairs == {"unparseable": 1} and fits["ok"].nulls == 1
    assert fits["seen"].repairs["above max"] == 1 and fits["seen"].stored == "text"
    text = shown(report)
    assert "PRIVATE - do not share" in text and "[red]x" in text and "\x1b[31m" not in text
    assert sorted(tmp_path.iterdir()) == before


def test_at_most_five_examples(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "\n".join(f"v{i}" * 30 for i in range(50)))
    spec = spec_of(unit={"records_per_person": 1}, columns={"a": {"kind": "categorical", "values": ["x"]}})
    fit = check(spec, Source.open(path, spec)).fit
    assert fit is not None and len(fit.columns[0].examples) == 5 and all(len(e) <= 40 for e in fit.columns[0].examples)


def test_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(ROWS.partition("\n")[0])
    spec = spec_of()
    report = check(spec, Source.open(path, spec))
    assert report.fit is not None and report.fit.rows == 0 and "none" in shown(report)

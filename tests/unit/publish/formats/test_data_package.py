"""The data package, read and checked by the Frictionless framework itself."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.publish.formats.metadata import LISTED_VALUES, build_table_schema
from privsyn.publish.formats.tables import get_null_text
from tests.support.described import ABOUT, CERTIFICATE, awkward, described, synthetic
from tests.support.examples import choose_example_count
from tests.support.specs import make_spec, specs

frictionless = pytest.importorskip("frictionless", reason="install privsyn-flows[formats-check]")


NULLS_ONLY = ("blank-row",)
"""What the framework calls a row of nulls only: no error in a table whose columns may all be null."""


def problems(folder: Path, *, skip: Sequence[str] = ()) -> list[str]:
    report = frictionless.validate(str(folder / "datapackage.json"), skip_errors=list(skip))
    found = [message for (message,) in report.flatten(["message"])] + list(report.warnings)
    assert report.valid == (not found)
    return found


def test_an_awkward_release_is_valid_and_reads_back(tmp_path: Path) -> None:
    spec = awkward()
    described(spec, tmp_path)
    assert problems(tmp_path) == []
    package = frictionless.Package(str(tmp_path / "datapackage.json"))
    rows = package.get_resource("synthetic-csv").read_rows()
    expected = synthetic(spec).to_pylist()
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        for name, value in wanted.items():
            found = row[name]
            if isinstance(found, Decimal):
                assert float(found) == pytest.approx(value, rel=1e-7)
            else:
                assert (found, type(found)) == (value, type(value)), name


def test_a_csv_like_the_source_is_described_as_it_is_written(tmp_path: Path) -> None:
    columns = {
        "größe": {"kind": "number", "min": 0, "max": 9, "decimals": 1, "nullable": True},
        "name": {"kind": "categorical", "values": ["a;b", "c'd", "e"], "nullable": True},
        "born": {"kind": "date", "min": "1950-01-01", "max": "2010-01-01", "format": "%d.%m.%Y"},
        "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "format": "%m/%d/%Y %H:%M"},
        "left": {"kind": "time"},
    }
    csv = {"delimiter": ";", "decimal": ",", "encoding": "cp1252", "quote": "'"}
    spec = make_spec(columns, csv=csv, like="source", null_values=["k. A."], formats=["parquet", "csv"])
    described(spec, tmp_path)
    assert problems(tmp_path) == []
    rows = frictionless.Package(str(tmp_path / "datapackage.json")).get_resource("synthetic-csv").read_rows()
    for row, wanted in zip(rows, synthetic(spec).to_pylist(), strict=True):
        found = {name: float(v) if isinstance(v, Decimal) else v for name, v in row.to_dict().items()}
        assert found == wanted


@given(spec=specs.filter(lambda spec: all(name == name.strip() for name in spec.columns)))
@settings(
    max_examples=choose_example_count(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_release_is_valid(spec: ReleaseSpec, tmp_path: Path) -> None:
    """But for names that begin or end in blanks, which the framework strips, and for rows of nulls only."""
    for old in (*tmp_path.glob("*.json"), *tmp_path.glob("synthetic.*")):
        old.unlink()
    described(spec.model_copy(update={"formats": ("parquet", "csv")}), tmp_path, rows=30)
    assert problems(tmp_path, skip=NULLS_ONLY) == []


@pytest.mark.parametrize("columns", [{"a": ["", "x"]}, {"a": ["x"]}, {"a": ["", "NA"], "b": ["NA_"]}])
def test_null_and_the_empty_text_stay_apart(columns: dict[str, list[str]], tmp_path: Path) -> None:
    kinds = {n: {"kind": "categorical", "values": v, "nullable": True} for n, v in columns.items()}
    spec = make_spec(kinds, formats=["parquet", "csv"])
    described(spec, tmp_path, rows=12)
    assert problems(tmp_path, skip=NULLS_ONLY) == []
    rows = frictionless.Package(str(tmp_path / "datapackage.json")).get_resource("synthetic-csv").read_rows()
    assert [r.to_dict() for r in rows] == synthetic(spec, 12).to_pylist()


def test_parts_share_one_schema_and_are_valid(tmp_path: Path) -> None:
    described(awkward(), tmp_path, rows=60, parts=3)
    assert problems(tmp_path) == []
    package = json.loads((tmp_path / "datapackage.json").read_text(encoding="utf-8"))
    assert [r["path"] for r in package["resources"]] == [
        *(f"synthetic_csv/part-{i:05d}.csv" for i in range(3)),
        *(f"synthetic/part-{i:05d}.parquet" for i in range(3)),
    ]
    assert {r["schema"] for r in package["resources"]} == {"schema.json"}
    assert sum(1 for _ in frictionless.Package(str(tmp_path / "datapackage.json")).resources) == 6


@pytest.mark.parametrize("file", ["synthetic.csv", "synthetic.parquet"])
def test_a_changed_file_is_found(file: str, tmp_path: Path) -> None:
    described(awkward(), tmp_path)
    content = bytearray((tmp_path / file).read_bytes())
    content[-1] ^= 1
    (tmp_path / file).write_bytes(bytes(content))
    assert any("hash" in p for p in problems(tmp_path))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("age", "90", "maximum"),
        ("age", "17", "minimum"),
        ("age", "1.5", "integer"),
        ("region", '"west"', "enum"),
        ("region", "", "required"),
        ("happy", "TRUE", "boolean"),
        ("seen", '"2020-01-01T00:00:01"', "maximum"),
        ("income", "-0.5", "minimum"),
    ],
)
def test_a_value_outside_its_domain_is_found(column: str, value: str, says: str, tmp_path: Path) -> None:
    described(make_spec(formats=["parquet", "csv"]), tmp_path, rows=6)
    path, descriptor = tmp_path / "synthetic.csv", tmp_path / "datapackage.json"
    head, first, *rest = path.read_bytes().decode("utf-8").split("\r\n")
    cells = first.split(",")
    cells[head.split(",").index(f'"{column}"')] = value
    path.write_bytes("\r\n".join([head, ",".join(cells), *rest]).encode("utf-8"))
    package = json.loads(descriptor.read_text(encoding="utf-8"))
    for resource in package["resources"]:
        del resource["hash"], resource["bytes"]
    descriptor.write_text(json.dumps(package), encoding="utf-8")
    assert any(says in p for p in problems(tmp_path))


def test_the_schema_is_the_public_domain(tmp_path: Path) -> None:
    fields = {f["name"]: f for f in build_table_schema(described(awkward(), tmp_path))["fields"]}
    assert fields["order"]["constraints"] == {"required": False, "minimum": -(2**53), "maximum": 2**53}
    assert fields["select"]["constraints"]["enum"][:3] == ["a,b", 'c"d', "e\nf"]
    assert fields["one"]["constraints"] == {"required": True, "enum": ["only", "other"]}
    assert fields["day"]["constraints"]["maximum"] == dt.date(2020, 1, 1).isoformat()
    assert fields["moment"]["constraints"]["maximum"] == "2020-01-01T12:30:00"
    assert [f["type"] for f in fields.values()] == [
        *("integer", "number", "string", "string", "integer", "number"),
        *("date", "datetime", "datetime", "boolean", "number"),
    ]
    assert "id" not in fields


def test_a_very_long_list_of_categories_is_no_constraint(tmp_path: Path) -> None:
    columns = {
        "long": {"kind": "categorical", "values": list(range(LISTED_VALUES + 1))},
        "short": {"kind": "categorical", "values": list(range(LISTED_VALUES - 1)), "nullable": True},
    }
    fields = build_table_schema(described(make_spec(columns), tmp_path))["fields"]
    assert ["enum" in f["constraints"] for f in fields] == [False, True]


def test_only_what_the_publisher_says_is_stated(tmp_path: Path) -> None:
    def package(about: dict[str, Any], name: str) -> dict[str, Any]:
        described(make_spec(about=about), tmp_path / name)
        return json.loads((tmp_path / name / "datapackage.json").read_text(encoding="utf-8"))

    bare, full = package({}, "bare"), package(ABOUT, "full")
    assert not {"licenses", "contributors", "sources", "homepage", "created"} & set(bare)
    assert bare["title"] == "Synthetic table people"
    assert full["licenses"] == [{"name": "CC-BY-4.0", "path": "https://spdx.org/licenses/CC-BY-4.0.html"}]
    assert full["contributors"] == [
        {"title": "Statistics Office", "role": "publisher", "email": "help@stats.example.org"}
    ]
    assert full["sources"] == [{"title": "Survey of people", "path": "https://stats.example.org/survey"}]
    for found in (bare, full):
        assert found["differentialPrivacy"]["epsilon"] == CERTIFICATE.epsilon
        assert f"({CERTIFICATE.epsilon:g}, {CERTIFICATE.delta:g})-differential privacy" in found["description"]


def test_a_licence_by_its_address_and_a_contact_page_are_valid(tmp_path: Path) -> None:
    about = {"licence": "https://example.org/terms", "contact": "https://example.org/ask"}
    release = described(make_spec(about=about), tmp_path)
    assert problems(tmp_path) == []
    assert get_null_text(release.ranges) == ""
    package = json.loads((tmp_path / "datapackage.json").read_text(encoding="utf-8"))
    assert package["licenses"] == [{"path": "https://example.org/terms"}]

"""Codebooks as people have them: Stata, SPSS, SAS, DDI, SQL, CSV, Excel and Croissant; what they leave open."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from privsyn.base.errors import RequestError
from privsyn.extras.foreign_files.codebooks import statistics_files
from privsyn.pipelines.registry import plan_release
from privsyn.specs.dictionaries import parse_dictionary
from privsyn.specs.draft import draft
from privsyn.specs.spec_file import find_todos, parse_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.codebooks import LISTS, LONG_SHEET, SHEET, write_stata
from tests.support.examples import keep_first
from tests.support.places import ROOT

for package in ("pyreadstat", "defusedxml", "sqlglot", "openpyxl"):
    pytest.importorskip(package, reason="the extra `codebooks` is not installed")

FIXTURES = ROOT / "tests" / "fixtures" / "codebooks"
STEWARD = {"unit: TODO": "unit: {records_per_person: 1}", "budget: TODO": "budget: {epsilon: 10, delta: 1.0e-8}"}
"""The two choices that no codebook makes."""


def drafted(folder: Path, dictionary: Path, columns: list[str]) -> tuple[str, dict[str, Any]]:
    """The draft for an empty CSV table of these columns, and its columns; a steward's two choices are made."""
    table = folder / f"{dictionary.stem}.csv"
    table.write_text(",".join(columns) + "\n", encoding="utf-8")
    text = draft(table, dictionary)
    for open_, chosen in STEWARD.items():
        text = text.replace(open_, chosen)
    return text, parse_yaml(text, "draft").content["columns"]


def codebook(folder: Path, form: str) -> tuple[Path, list[str]]:
    """One of three codebooks of 30 columns, and its columns."""
    if form == "stata":
        return folder / "gss.dta", write_stata(folder / "gss.dta")
    path = FIXTURES / {"ddi": "survey.xml", "sql": "clinic.sql"}[form]
    return path, list(parse_dictionary(path, path.stem).columns)


@pytest.mark.parametrize("form", keep_first(["ddi", "stata", "sql"]))
def test_thirty_columns_leave_no_todo(tmp_path: Path, form: str) -> None:
    path, columns = codebook(tmp_path, form)
    assert len(columns) == 30
    text, content = drafted(tmp_path, path, columns)
    assert list(find_todos(parse_yaml(text, "draft").content)) == [], text
    spec = parse_spec(text)
    assert list(spec.columns) == list(content) == columns
    assert plan_release(spec).stages, "it can be released as it is"


@pytest.mark.slow
def test_stata(tmp_path: Path) -> None:
    content = drafted(tmp_path, *codebook(tmp_path, "stata"))[1]
    assert content["party"]["values"] == list(LISTS["party"][1]) and content["party"]["nullable"] is True
    assert content["age"] == {
        "kind": "number", "min": 18, "max": 99, "nullable": True, "description": "Age of respondent (18-99)"
    }  # fmt: skip
    assert (content["income"]["kind"], content["income"]["max"]) == ("number", 999.9)
    assert content["hours"]["max"] == 112 and content["siblings"]["max"] == 40 and content["educ"]["min"] == 0
    table = tmp_path / "words.parquet"
    pd.DataFrame({"party": ["left"], "age": [20]}).to_parquet(table)
    words = parse_yaml(draft(table, tmp_path / "gss.dta"), "draft").content["columns"]
    assert words["party"]["values"] == list(LISTS["party"][1].values()), "the table has words, not codes"


@pytest.mark.parametrize(
    ("form", "decimals"), [("%9.2f", 2), ("%-12.3fc", 3), ("%9.0g", None), ("%8.0f", None), ("f8.2", None)]
)
def test_a_number_has_the_decimals_of_its_stata_format(form: str, decimals: int | None) -> None:
    """SPSS gives every number F8.2 unless somebody says otherwise, so that says nothing."""
    from types import SimpleNamespace

    none: dict[str, Any] = {}
    found = SimpleNamespace(
        column_names_to_labels=none, readstat_variable_types={"x": "double"}, original_variable_types={"x": form},
        variable_value_labels=none, variable_measure=none,
    )  # fmt: skip
    assert statistics_files._read_column("x", found).decimals == decimals


def test_a_share_of_0_to_1_that_is_stored_as_doubles_is_drafted_as_a_number(tmp_path: Path) -> None:
    """By the file that holds the labels, and by the table where another dictionary calls it integer."""
    frame = pd.DataFrame({"food": [0.379, 0.5], "rooms": [3.0, 4.0]})
    path, table = tmp_path / "shares.dta", tmp_path / "shares.parquet"
    frame.to_stata(path, write_index=False, variable_labels={"food": "Share of food (0-1)"})
    frame.to_parquet(table)
    food = parse_yaml(draft(table, path), "draft").content["columns"]["food"]
    assert (food["kind"], food["min"], food["max"]) == ("number", 0, 1)
    told = tmp_path / "told.json"
    columns = {name: {"kind": "integer", "min": 0, "max": 9} for name in frame}
    told.write_text(json.dumps({"columns": columns}), encoding="utf-8")
    text = draft(table, told)
    assert {c["kind"] for c in parse_yaml(text, "draft").content["columns"].values()} == {"number"}
    assert text.count("write `kind: integer` only if no value has a fraction") == 2


@pytest.mark.parametrize("ending", [".sav", ".zsav", ".xpt"])
def test_spss_and_sas(tmp_path: Path, ending: str) -> None:
    import pyreadstat

    path = tmp_path / f"a{ending}"
    frame = pd.DataFrame({"sex": [1.0, 2.0], "age": [30.0, 40.0], "town": ["a", "b"]})
    labels = {"sex": "Sex", "age": "Age (0-99)", "town": "Town"}
    values = {"sex": {1.0: "m", 2.0: "f"}, "age": {99.0: "99 or older"}}
    if ending == ".xpt":
        pyreadstat.write_xport(frame, str(path), column_labels=labels)
    else:
        pyreadstat.write_sav(
            frame, str(path), column_labels=labels, variable_value_labels=values, compress=ending == ".zsav"
        )
    found = parse_dictionary(path, "a").columns
    assert found["age"].max == 99 and found["town"].kind == "categorical" and found["town"].values is None
    if ending != ".xpt":
        assert found["sex"].values == [1, 2] and found["sex"].labels == ["m", "f"]
        assert found["age"].values is None and "99 = 99 or older" in found["age"].remarks[-1]


def test_spss_portable_files_have_names_and_labels_of_variables(tmp_path: Path) -> None:
    import pyreadstat

    path = tmp_path / "a.por"
    frame = pd.DataFrame({"AGE": [30.0, 40.0], "TOWN": ["a", "b"]})
    pyreadstat.write_por(frame, str(path), column_labels={"AGE": "Age (0-99)", "TOWN": "Town"})
    found = parse_dictionary(path, "a").columns
    assert (found["AGE"].kind, found["AGE"].min, found["AGE"].max) == ("number", 0, 99)
    assert found["TOWN"].kind == "categorical" and found["TOWN"].description == "Town"


def test_a_sas_catalogue_beside_the_table_is_read_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here writes SAS files: what pyreadstat is asked is looked at, and its answer is that of another form."""
    import pyreadstat

    sav = tmp_path / "a.sav"
    pyreadstat.write_sav(pd.DataFrame({"sex": [1.0, 2.0]}), str(sav), variable_value_labels={"sex": {1: "m", 2: "f"}})
    asked: list[dict[str, object]] = []

    def reader(path: str, **options: object) -> object:
        asked.append(options)
        return pyreadstat.read_sav(str(sav), metadataonly=True)

    monkeypatch.setattr(pyreadstat, "read_sas7bdat", reader)
    (tmp_path / "a.sas7bdat").write_bytes(b"SAS")
    assert parse_dictionary(tmp_path / "a.sas7bdat", "a").columns["sex"].labels == ["m", "f"]
    (tmp_path / "a.sas7bcat").write_bytes(b"SAS")
    parse_dictionary(tmp_path / "a.sas7bdat", "a")
    assert asked == [{"metadataonly": True}, {"metadataonly": True, "catalog_file": str(tmp_path / "a.sas7bcat")}]


def test_ddi_takes_nothing_that_was_counted_in_the_rows(tmp_path: Path) -> None:
    content = drafted(tmp_path, *codebook(tmp_path, "ddi"))[1]
    assert (content["AGE"]["min"], content["AGE"]["max"], content["AGE"]["unit"]) == (0, 110, "years")
    assert content["WAGE"]["decimals"] == 2 and content["WAGE"]["kind"] == "number"
    assert content["SEX"]["values"] == [1, 2], "-9, not stated, is no value"
    assert content["REGION"]["values"] == ["01", "02", "03", "04"] and content["URBRUR"]["values"] == ["U", "R"]
    assert "VILLAGE" not in parse_dictionary(FIXTURES / "survey.xml", "survey").columns, "of another file"
    counted = tmp_path / "c.xml"
    counted.write_text('<codeBook><var name="a"><sumStat type="min">3</sumStat></var></codeBook>', encoding="utf-8")
    found = parse_dictionary(counted, "c").columns["a"]
    assert found.min is None and "statistics of the data" in found.remarks[0]


@pytest.mark.parametrize("text", ["²", "--5", "9" * 5_000, "٣", "-"])
def test_what_only_looks_like_a_number_is_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(f"name,type,values,decimals\na,category,{text};1,{text}\n", encoding="utf-8")
    found = parse_dictionary(tmp_path / "a.csv", "a").columns["a"]
    assert found.values == [text, "1"] and found.decimals is None
    codes = "".join(f"<catgry><catValu>{c}</catValu><labl>x</labl></catgry>" for c in (text, "1"))
    variables = f'<var name="a"><labl>A</labl>{codes}</var><var name="b" dcml="{text}"><labl>B</labl></var>'
    (tmp_path / "a.xml").write_text(f"<codeBook><dataDscr>{variables}</dataDscr></codeBook>", encoding="utf-8")
    assert parse_dictionary(tmp_path / "a.xml", "a").columns["a"].values == [text, "1"]


def test_sql(tmp_path: Path) -> None:
    content = drafted(tmp_path, *codebook(tmp_path, "sql"))[1]
    assert content["visit_id"]["kind"] == "drop"
    assert content["sex"]["values"] == ["female", "male", "other"] and content["sex"]["nullable"] is False
    assert content["ward"]["values"] == ["EMR", "SUR", "MED", "PED"] and content["insurance_id"]["values"] == [1, 2, 3]
    assert (content["oxygen"]["min"], content["oxygen"]["max"]) == (1, 100), "> 0"
    assert (content["weight"]["min"], content["weight"]["decimals"]) == (0.3, 1)
    assert (content["nights"]["max"], content["allergies"]["max"]) == (365, 29)
    assert str(content["admitted"]["max"]) == "2024-12-31" and content["admitted"]["kind"] == "date"
    assert content["temperature"]["description"].startswith("Body temperature")
    assert content["outcome"]["values"] == ["home", "transferred", "died"] and content["pregnant"]["nullable"] is True


def test_sheets(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(SHEET, encoding="utf-8-sig")
    pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False).to_excel(tmp_path / "a.xlsx", index=False)
    (tmp_path / "b.tsv").write_text(LONG_SHEET, encoding="utf-8")
    for name in ("a.csv", "a.xlsx"):
        found = parse_dictionary(tmp_path / name, "a").columns
        assert [c.kind for c in found.values()] == [
            "drop", "integer", "integer", "number", "categorical", "categorical", "categorical", None, "boolean",
            "datetime",
        ]  # fmt: skip
        assert (found["grade"].min, found["grade"].max, found["wage"].max) == (1, 6, 9999.5)
        assert found["sex"].values == [1, 2] and found["sex"].labels == ["male", "female"]
        assert found["region"].values == ["north", "south", "east"] and found["zip"].values == ["01000", "02000"]
        assert [found[n].nullable for n in ("age", "wage", "zip")] == [False, True, True]
    long = parse_dictionary(tmp_path / "b.tsv", "b").columns
    assert long["sex"].values == [1, 2] and long["state"].labels == ["New York", "Massachusetts"]
    assert (long["age"].kind, long["age"].max) == ("integer", 89)


def test_croissant(tmp_path: Path) -> None:
    rows = [{"states/code": "ny", "states/name": "New York"}, {"states/code": "ma", "states/name": "Massachusetts"}]
    content = {
        "@type": "sc:Dataset",
        "recordSet": [
            {"@id": "states", "dataType": "sc:Enumeration", "field": [], "data": rows},
            {
                "@id": "people",
                "name": "people",
                "field": [
                    {"name": "age", "dataType": "sc:Integer", "description": "Age"},
                    {"name": "state", "dataType": "sc:Text", "references": {"field": {"@id": "states/code"}}},
                    {"name": "day", "dataType": ["sc:Date"]},
                ],
            },
        ],
    }
    (tmp_path / "c.json").write_text(json.dumps(content), encoding="utf-8")
    found = parse_dictionary(tmp_path / "c.json", "anything").columns
    assert [c.kind for c in found.values()] == ["integer", "categorical", "datetime"]
    assert found["state"].values == ["ny", "ma"] and found["day"].type == "date"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.xml", "<not closed"),
        ("a.xml", "<codeBook/>"),
        ("a.xml", '<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><a>&d;</a>'),
        ("a.sql", "CREATE TABLE ("),
        ("a.sql", "SELECT 1"),
        ("a.dta", "no Stata"),
        ("a.sav", ""),
        ("a.xlsx", "no sheet"),
        ("a.csv", ""),
        ("a.csv", "x,y\n1,2\n"),
        ("a.csv", b"\xff\xfe\x00"),
        ("a.sql", b"\xff\xfe\x00"),
        ("a.json", '{"recordSet": [5]}'),
    ],
)
def test_a_file_of_another_form_is_refused_in_words(tmp_path: Path, name: str, content: str | bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(RequestError) as caught:
        parse_dictionary(path, "a")
    assert caught.value.field == "draft_spec.dictionary" and caught.value.cure and caught.value.exit_code == 2
    with pytest.raises(RequestError, match="no file"):
        parse_dictionary(tmp_path / f"none{path.suffix}", "a")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of the extra is installed."""
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] in ("pyreadstat", "sqlglot", "defusedxml"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    yield


@pytest.mark.parametrize("name", ["a.dta", "a.sql", "a.xml"])
def test_a_missing_package_is_named_with_its_cure(tmp_path: Path, without: None, name: str) -> None:
    (tmp_path / name).write_text("x", encoding="utf-8")
    with pytest.raises(
        RequestError, match=r"needs the package \w+, which is not installed.*privsyn-flows\[codebooks\]"
    ):
        parse_dictionary(tmp_path / name, "a")

"""Dictionaries are read in a process with limits: the same facts, and one sentence where a limit is met."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from privsyn.base.errors import RequestError
from privsyn.extras.foreign_files.codebooks import sheets
from privsyn.specs import dictionaries
from privsyn.specs.dictionaries import parse_dictionary, read_dictionary
from tests.support.codebooks import SHEET, write_stata
from tests.support.examples import keep_first
from tests.support.places import ROOT

for package in ("pyreadstat", "defusedxml", "sqlglot", "openpyxl"):
    pytest.importorskip(package, reason="the extra `codebooks` is not installed")

FIXTURES = ROOT / "tests" / "fixtures" / "codebooks"
FRICTIONLESS = {
    "fields": [
        {"name": "day", "type": "datetime", "constraints": {"minimum": "2010-01-01T10:00:00", "required": True}},
        {"name": "sex", "type": "string", "constraints": {"enum": ["m", "f"]}},
    ],
    "missingValues": ["", "-"],
}


def write(folder: Path, form: str) -> Path:
    path = folder / f"a.{form}"
    if form == "dta":
        write_stata(path)
    elif form == "json":
        path.write_text(json.dumps(FRICTIONLESS), encoding="utf-8")
    elif form == "csv":
        path.write_text(SHEET, encoding="utf-8")
    elif form == "xlsx":
        pd.DataFrame({"name": ["age", "sex"], "min": [18, None], "max": [99, None]}).to_excel(path, index=False)
    else:
        path = FIXTURES / {"xml": "survey.xml", "sql": "clinic.sql"}[form]
    return path


@pytest.mark.parametrize("form", keep_first(["dta", "xml", "json", "csv", "xlsx", "sql"]))
def test_the_process_reads_the_same_facts(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form)
    found = read_dictionary(path, path.stem)
    assert found == parse_dictionary(path, path.stem) and found.columns


def test_a_file_that_is_none_is_refused_in_the_readers_words(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<not closed", encoding="utf-8")
    for name, words in (("a.xml", "a.xml is not a readable DDI codebook"), ("b.xml", "there is no file")):
        with pytest.raises(RequestError, match=words) as caught:
            read_dictionary(tmp_path / name, "a")
        assert caught.value.field == "draft_spec.dictionary" and caught.value.cure and caught.value.exit_code == 2


@pytest.mark.slow
def test_a_workbook_that_unpacks_to_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "xlsx")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/more.xml", b" " * (sheets.MAX_UNPACKED + 1))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(RequestError, match=r"a\.xlsx unpacks to more than 200 MB\. Keep the sheet") as caught:
        read_dictionary(path, "a")
    assert caught.value.field == "draft_spec.dictionary"


@pytest.mark.parametrize(
    ("limit", "most", "name"),
    [
        ("SECONDS", 1, "a.sql"),
        *(pytest.param(*v, marks=pytest.mark.slow) for v in [("MEMORY", 500 << 20, "a.xml"), ("SECONDS", 1, "a.xlsx")]),
    ],
)
def test_where_a_limit_is_met_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, name: str
) -> None:
    path = tmp_path / name
    if name == "a.sql":
        rows = ", ".join(f"({i}, 'a')" for i in range(60_000))
        path.write_text(" ".join(["CREATE TABLE a (b INT, c TEXT);", "INSERT INTO a VALUES", rows]))
    elif name == "a.xml":
        path.write_text("<codeBook>" + "<a><b><c>" * 1_000_000 + "</c></b></a>" * 1_000_000 + "</codeBook>")
    else:
        write(tmp_path, "xlsx")
        row = "<row><c t='n'><v>1</v></c></row>"
        head = "<worksheet xmlns='http://schemas.openxmlformats.org/spreadsheetml/2006/main'><sheetData>"
        parts = {}
        with zipfile.ZipFile(path) as book:
            parts = {part: book.read(part) for part in book.namelist()}
        parts["xl/worksheets/sheet1.xml"] = (head + row * 1_000_000 + "</sheetData></worksheet>").encode()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
            for part, content in parts.items():
                book.writestr(part, content)
        assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(dictionaries, limit, most)
    with pytest.raises(
        RequestError, match=r"cannot be read within \d+ seconds of work and \d+ GiB of memory"
    ) as caught:
        read_dictionary(path, "a")
    assert caught.value.field == "draft_spec.dictionary" and "Give a smaller dictionary" in caught.value.cure


@pytest.mark.slow
def test_a_script_without_a_guard_may_draft(tmp_path: Path) -> None:
    """The process imports no script of the caller's, and no module that lies in the working folder."""
    (tmp_path / "a.csv").write_text("name,type\nage,integer\n", encoding="utf-8")
    (tmp_path / "t.csv").write_text("age\n", encoding="utf-8")
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n", encoding="utf-8")
    script = "import privsyn\nprint(privsyn.draft_spec('t.csv', dictionary='a.csv')['columns']['age']['kind'])\n"
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "run.py").write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, "scripts/run.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "integer\n", done.stderr


def test_the_process_loads_little() -> None:
    loaded = "import sys, privsyn.specs.dictionaries as d; d.load_part('codebooks', '.xml'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    heavy = {"numba", "opendp", "prefect", "pandas", "pyarrow", "scipy", "sqlalchemy", "great_expectations"}
    assert heavy & set(done.stdout.split()) == set()

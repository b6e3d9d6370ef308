"""Which public tables a benchmark measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import tables


def test_tables_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    (tmp_path / "adult.parquet").touch()
    assert tables.keep_present(["adult-small", "adult", "slid", "gss-small"], "-small") == ["adult-small", "adult"]
    assert "slid, gss-small" in capsys.readouterr().err
    assert tables.keep_present(["adult"]) == ["adult"] and not capsys.readouterr().err

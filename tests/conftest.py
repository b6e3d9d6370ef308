"""Fixtures shared by all tests: an own output folder and ledger, and no telemetry."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

os.environ.update(DO_NOT_TRACK="1", PREFECT_SERVER_ANALYTICS_ENABLED="false", GX_ANALYTICS_ENABLED="false")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with PRIVSYN_OUT and PRIVSYN_LEDGER pointing into it."""
    for name in ("PRIVSYN_RELEASED", "PRIVSYN_PRIVATE", "PRIVSYN_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PRIVSYN_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))
    return tmp_path


@pytest.fixture
def save(tmp_path: Path) -> Callable[[pa.Table, str], str]:
    """Write a table as Parquet into the test's folder and return its path."""

    def write(table: pa.Table, name: str = "people.parquet") -> str:
        path = tmp_path / name
        pq.write_table(table, path)
        return str(path)

    return write

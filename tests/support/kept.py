"""A folder at a fixed place that many tests begin with as one of them left it.

Belongs here: putting it back.  Does not belong here: what is in it.  Private records hold absolute paths: a copy of a
finished release is of no use at another place; at its own place it is as good as a new one, and takes no time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@dataclass
class Kept:
    """``home``: the folder, with both zones and the ledger in it; ``made``: what the first test made of it."""

    home: Path
    made: Any = None

    def begin(self, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An empty folder with PRIVSYN_OUT and PRIVSYN_LEDGER pointing into it."""
        for name in ("PRIVSYN_RELEASED", "PRIVSYN_PRIVATE", "PRIVSYN_THREADS"):
            monkeypatch.delenv(name, raising=False)
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        monkeypatch.setenv("PRIVSYN_OUT", str(self.home / "out"))
        monkeypatch.setenv("PRIVSYN_LEDGER", str(self.home / "ledger.sqlite"))
        return self.home

    def begin_with(self, monkeypatch: pytest.MonkeyPatch, table: pa.Table) -> str:
        """Such a folder with a table in it; the table's path."""
        pq.write_table(table, self.begin(monkeypatch) / "people.parquet")
        return str(self.home / "people.parquet")

    def once(self, make: Callable[[], Any]) -> Any:
        """What ``make`` returned the first time, with the folder as it left it then."""
        copy = self.home.with_name(f"{self.home.name}-kept")
        if copy.exists():
            shutil.copytree(copy, self.home, dirs_exist_ok=True)
        else:
            self.made = make()
            shutil.copytree(self.home, copy)
        return self.made

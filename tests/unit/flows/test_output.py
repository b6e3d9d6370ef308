"""Standard output that nobody reads any more is no error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

from privsyn.cli.common import Tables, print_answer


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """Standard output whose reader has gone, as in ``privsyn ledger show | head -1``."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        yield stream
        stream.flush()


def test_a_reader_who_has_gone_is_met_with_silence(gone: TextIO) -> None:
    print_answer("{}")
    print_answer("{}")


def test_tables_meet_him_with_silence_too(gone: TextIO) -> None:
    """And the command's own exit code stays: rich alone would end the program with 1."""
    tables = Tables()
    tables.print("one")
    tables.print("two")

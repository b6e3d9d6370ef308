"""What a flow's caller gives it and hears of it: its settings reach the flow, and a reader who has gone is no error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.cli.common import Tables, print_answer
from privsyn.flows.private_errors import get_settings, hide_private_errors, use_settings


def test_the_callers_settings_hold_inside_and_those_of_the_environment_outside(places: Path) -> None:
    own = Settings(out=places / "elsewhere")
    with use_settings(own):
        assert get_settings() is own
    assert get_settings().out == places / "out"


def test_what_an_error_keeps_privately_lies_in_the_callers_folder(places: Path) -> None:
    own = Settings(out=places / "elsewhere")
    with use_settings(own), pytest.raises(PrivsynError), hide_private_errors("release"):
        raise ValueError("zanzibar")
    assert "zanzibar" in (own.private_root / "failure.txt").read_text(encoding="utf-8")
    assert not (Settings().private_root / "failure.txt").exists()


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

"""The settings of a command reach the flow that it calls, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
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

"""Standard output that nobody reads any more is no error."""

from __future__ import annotations

import os
import sys

import pytest

from privsyn.flows.cli.common import print_answer


def test_a_reader_who_has_gone_is_met_with_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ``privsyn ledger show --json | head -1``."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        print_answer("{}")
        print_answer("{}")
        gone.flush()

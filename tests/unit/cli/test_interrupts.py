"""A Ctrl-C that compiled code turned into an error of its own is told as what it was: somebody stopped the command."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import typer

from privsyn.cli.common import print_errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_under_another_error_is_told_as_one(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(typer.Exit) as ended, print_errors(debug=False):
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise SystemError("initialization of a module raised") from None
    assert ended.value.exit_code == 1
    assert "stopped. Run the same command again" in " ".join(capsys.readouterr().err.split())
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_error_without_an_interrupt_is_told_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), print_errors(debug=False):
        raise SystemError("initialization of a module raised")
    assert "unexpected SystemError" in capsys.readouterr().err


def test_a_full_disk_behind_standard_output_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, print_errors(debug=False), Path("/dev/full").open("w") as full:
        full.write("answer")
        full.flush()
    assert ended.value.exit_code == 1
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("privsyn: what is written does not fit or cannot be kept: No space left on device. Free")

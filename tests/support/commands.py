"""The command line as tests call it.

Belongs here: running ``privsyn`` in this process, without a server of the user's.  Does not belong here: specs and
tables (tests/support/specs.py).
"""

from __future__ import annotations

import pytest
from click.testing import Result
from typer.testing import CliRunner

from privsyn import cli


def privsyn(*arguments: object) -> Result:
    """``privsyn ARGUMENTS``: exit code, output, and error output."""
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def use_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``privsyn release`` run in this process, whatever the user's own settings say of a Prefect server."""
    monkeypatch.setattr("privsyn.server.environment.is_server_configured", lambda: False)

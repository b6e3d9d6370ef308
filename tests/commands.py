"""The command line as tests call it.

Belongs here: running ``privsyn`` in this process.  Does not belong here: specs and tables (tests/specs.py).
"""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from flows import cli


def privsyn(*arguments: object) -> Result:
    """``privsyn ARGUMENTS``: exit code, output, and error output."""
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])

"""``privsyn ledger show``.

Belongs here: what people type and see.  Does not belong here: the ledger (flows/ledger.py) and its view
(flows/ledger_view.py).
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from flows.cli.common import PIPED_WIDTH, Debug, errors_for_people

app = typer.Typer(no_args_is_help=True, help="Look into the privacy ledger.")


@app.command("show")
def show_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="One data set; without it, all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    debug: Debug = False,
) -> None:
    """Show what each data set has spent of its budget, and every charge.

    Exit code 1 when the audit finds a problem.  A ledger that does not exist yet is no error, and is not made.
    """
    with errors_for_people(debug=debug):
        from flows.ledger_view import ledger_as_json, print_ledger
        from flows.settings import Settings

        settings = Settings()
        if as_json:
            answer = ledger_as_json(settings.ledger, dataset)
            print(json.dumps(answer))
            verified = bool(answer["verified"])
        else:
            width = None if sys.stdout.isatty() else PIPED_WIDTH
            verified = print_ledger(settings.ledger, dataset, Console(highlight=False, width=width))
        if not verified:
            raise typer.Exit(1)

"""``privsyn ledger show | verify | export | create | backup | restore``."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from privsyn.cli.common import (
    COMMAND_LINE,
    Debug,
    RunsFolder,
    Tables,
    parse_path,
    people,
    print_answer,
    print_errors,
    read_settings,
    write_new,
)

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
    with print_errors(debug=debug):
        from privsyn.api.ledger import LedgerView
        from privsyn.base.settings import Settings
        from privsyn.cli.ledger_tables import print_ledger

        settings = Settings()
        if as_json:
            answer = LedgerView(settings).as_json(dataset)
            print_answer(json.dumps(answer))
            verified = bool(answer["verified"])
        else:
            verified = print_ledger(LedgerView(settings), dataset, Tables())
        if not verified:
            raise typer.Exit(1)


@app.command("verify")
def verify_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="One data set; without it, all.")] = None,
    out: RunsFolder = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Released folders, or a folder of them, that lie elsewhere; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    debug: Debug = False,
) -> None:
    """Recompute every sum and hash of the ledger, and compare it with the certificates in every folder it remembers.

    Exit code 1 when anything does not agree.  Reads no private table and writes nothing.
    """
    with print_errors(debug=debug):
        from privsyn.api.ledger import LedgerView
        from privsyn.cli.ledger_tables import print_verified

        settings = read_settings(out)
        places = [parse_path(place, "--against") or Path() for place in against or ()]
        verified = LedgerView(settings).verify(dataset, places)
        if as_json:
            print_answer(json.dumps(verified.as_json(COMMAND_LINE)))
        else:
            print_verified(verified, Tables())
        if verified.problems:
            raise typer.Exit(1)


class Format(StrEnum):
    """What an export is written as."""

    JSON = "json"
    CSV = "csv"


@app.command("export")
def export_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="One data set; without it, all.")] = None,
    form: Annotated[Format, typer.Option("--format", help="JSON has caps and entries, CSV the entries.")] = Format.JSON,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Else standard output.")] = None,
    debug: Debug = False,
) -> None:
    """Write the ledger's history for a notebook or an auditor: every entry, with exact rho and its hash."""
    with print_errors(debug=debug):
        from privsyn.api.ledger import LedgerView
        from privsyn.base.settings import Settings
        from privsyn.ledgers.backup import export_csv, export_json

        path = parse_path(output, "--output")
        ledger = LedgerView(Settings()).opened(dataset)
        text = (export_json if form is Format.JSON else export_csv)(ledger, dataset)
        if path is None:
            sys.stdout.write(text)
            return
        write_new(path, lambda: text, "--output")
        people.print(f"Wrote {path}.", soft_wrap=True)


@app.command("create")
def create_command(debug: Debug = False) -> None:
    """Make the ledger's tables where they are missing, as the database's owner; releases then need to add rows only.

    A release makes what is missing by itself where it may.  Twice is once.
    """
    with print_errors(debug=debug):
        from privsyn.base.settings import Settings
        from privsyn.ledgers.ledger import Ledger

        ledger = Ledger(Settings().ledger)
        ledger.make_tables()
        people.print(f"The ledger {ledger.name} has all its tables.", soft_wrap=True, markup=False)


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file; it becomes a ledger of its own.")],
    debug: Debug = False,
) -> None:
    """Copy the ledger, in SQLite or PostgreSQL, as it is now, while others may write it, and check the copy."""
    with print_errors(debug=debug):
        from privsyn.base.settings import Settings
        from privsyn.ledgers.backup import back_up

        entries = back_up(Settings().ledger, file)
        people.print(f"Wrote {file}: {entries} entries, every hash and sum verified.", soft_wrap=True)


@app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    debug: Debug = False,
) -> None:
    """Fill a ledger that holds nothing yet, in SQLite or PostgreSQL, from a backup."""
    with print_errors(debug=debug):
        from privsyn.base.settings import Settings
        from privsyn.ledgers.backup import restore
        from privsyn.ledgers.database import hide_password

        address = Settings().ledger
        entries = restore(file, address)
        people.print(f"Restored {entries} entries into {hide_password(address)}.", soft_wrap=True, markup=False)

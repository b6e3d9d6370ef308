"""``privsyn ledger show | calendar | verify | export | create | backup | restore``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

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

if TYPE_CHECKING:
    from rich.console import Console

    from privsyn.api.ledger import LedgerView, SecondOpinions, Verified
    from privsyn.ledgers.audit import DatasetSummary
    from privsyn.ledgers.ledger import Ledger

app = typer.Typer(no_args_is_help=True, help="Show what was spent, and check the privacy ledger.")


@app.command("show")
def show_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Data set. Default: all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Show the budgets and charges of data sets.

    Exit code 1 if the audit finds a problem. A ledger that does not exist yet is not an error, and is not created.
    """
    with print_errors(debug=debug):
        from privsyn.api.ledger import LedgerView

        settings = read_settings()
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
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Data set. Default: all.")] = None,
    out: RunsFolder = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Released folders elsewhere, or a folder of them. Repeatable."),
    ] = None,
    second_opinion: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also compute the cost with OpenDP and dp-accounting, into a new JSON file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Check the ledger and the certificates of releases.

    It recomputes every sum and hash, and compares them with the certificates in every folder that the ledger knows.
    It reads no private table. Exit code 1 if anything does not agree.
    """
    with print_errors(debug=debug):
        from privsyn.api.ledger import LedgerView

        settings = read_settings(out)
        places = [parse_path(place, "--against") or Path() for place in against or ()]
        view = LedgerView(settings)
        verified = view.verify(dataset, places)
        opinions = None
        if second_opinion is not None:
            opinions = view.form_second_opinions(dataset, places)
            path = parse_path(second_opinion, "--second-opinion") or Path()
            write_new(path, opinions.format_json, "--second-opinion")
            people.print(
                f"Wrote {path}: a second opinion on {len(opinions.certificates)} certificates.", soft_wrap=True
            )
            verified = replace(verified, problems=(*verified.problems, *opinions.problems))
        if as_json:
            print_answer(json.dumps(verified.as_json(COMMAND_LINE)))
        else:
            if opinions is not None:
                Tables().print(_build_opinions(opinions))
            print_verified(verified, Tables())
        if verified.problems:
            raise typer.Exit(1)


class Format(StrEnum):
    """What an export is written as."""

    JSON = "json"
    CSV = "csv"


@app.command("calendar")
def calendar_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Data set. Default: all.")] = None,
    last: Annotated[int, typer.Option(metavar="N", help="Number of periods of each length.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Show which periods are released, missed or refused."""
    with print_errors(debug=debug):
        from dataclasses import asdict

        from privsyn.api.ledger import CALENDAR_HEADINGS, LedgerView

        calendar = LedgerView(read_settings()).calendar(dataset, last)
        if as_json:
            print_answer(json.dumps([asdict(day) for day in calendar.days]))
            return
        if not calendar.days:
            people.print("No data set has begun a period: a release without --period is of none.")
            return
        table = Table(*CALENDAR_HEADINGS, title="Periods")
        for row in calendar.rows:
            table.add_row(*row, style=_CALENDAR_STYLES.get(row[2]))
        Tables().print(table)


_CALENDAR_STYLES = {"missed": "red", "refused": "yellow", "begun": "yellow"}


@app.command("export")
def export_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Data set. Default: all.")] = None,
    form: Annotated[Format, typer.Option("--format", help="JSON: caps and entries. CSV: entries.")] = Format.JSON,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="File to write. Default: standard output.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Export every entry with its exact rho and hash."""
    with print_errors(debug=debug):
        from privsyn.api.ledger import LedgerView
        from privsyn.ledgers.backup import export_csv, export_json

        path = parse_path(output, "--output")
        ledger = LedgerView(read_settings()).opened(dataset)
        text = (export_json if form is Format.JSON else export_csv)(ledger, dataset)
        if path is None:
            sys.stdout.write(text)
            return
        write_new(path, lambda: text, "--output")
        people.print(f"Wrote {path}.", soft_wrap=True)


@app.command("create")
def create_command(debug: Debug = False) -> None:
    """Create missing ledger tables as the database owner.

    Releases then only need the right to add rows. A release that may create tables does this by itself.
    Running it twice changes nothing.
    """
    with print_errors(debug=debug):
        from privsyn.ledgers.ledger import Ledger

        ledger = Ledger(read_settings().ledger)
        ledger.make_tables()
        people.print(f"The ledger {ledger.name} has all its tables.", soft_wrap=True)


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file, which is a complete ledger.")],
    debug: Debug = False,
) -> None:
    """Copy the ledger to a file and verify the copy.

    Works with SQLite and PostgreSQL, and while others write to the ledger.
    """
    with print_errors(debug=debug):
        from privsyn.ledgers.backup import back_up

        entries = back_up(read_settings().ledger, file)
        people.print(f"Wrote {file}: {entries} entries, every hash and sum verified.", soft_wrap=True)


@app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Backup file.")],
    debug: Debug = False,
) -> None:
    """Fill an empty ledger from a backup.

    Works with SQLite and PostgreSQL.
    """
    with print_errors(debug=debug):
        from privsyn.ledgers.backup import restore
        from privsyn.ledgers.database import hide_password

        address = read_settings().ledger
        entries = restore(file, address)
        people.print(f"Restored {entries} entries into {hide_password(address)}.", soft_wrap=True)


_VERIFIED = ("Verified: ", "green")


def print_verified(verified: Verified, console: Console) -> None:
    """Print every problem and note on a line of its own, then what was looked at."""
    for problem in verified.problems:
        console.print(f"PROBLEM: {problem}", style="red", soft_wrap=True)
    for note in verified.notes:
        console.print(f"Note: {COMMAND_LINE.text(note)}", style="yellow", soft_wrap=True)
    if not verified.problems:
        scope = "every hash, state and sum, and every certificate against its charges"
        lacking = verified.charges_not_compared
        scope += f"; {lacking} spent charges were compared with nothing (see the notes)." if lacking else "."
        console.print(Text.assemble(_VERIFIED, scope), soft_wrap=True)
    console.print(f"Ledger: {verified.ledger}; {verified.counted}", style="dim", soft_wrap=True)


def _build_opinions(opinions: SecondOpinions) -> Table:
    """Return epsilon of each certificate: as it states it, and by OpenDP and dp-accounting."""
    columns = ("run", "accountant", "queries", "delta", "epsilon stated", "OpenDP", "Renyi", "PLD", "PLD at least")
    table = Table(*columns, title="Second opinion", caption="OpenDP's zCDP; dp-accounting's Renyi and PLD accountants")
    for one in opinions.certificates:
        said = one.opinion
        epsilons = (said.epsilon, said.opendp_epsilon, said.renyi_epsilon, said.pld_epsilon, said.pld_epsilon_at_least)
        figures = (f"{epsilon:.5g}" for epsilon in epsilons)
        table.add_row(one.run, said.accountant, f"{said.queries:,}", f"{said.delta:g}", *figures)
    return table


def print_ledger(view: LedgerView, dataset: str | None, console: Console) -> bool:
    """Return the figures of each data set, for a named one also every entry; says and returns the audit's verdict."""
    from privsyn.base.errors import LedgerMissingError
    from privsyn.ledgers.ledger import Ledger

    summaries = view.summaries(dataset)
    try:
        ledger = Ledger(view.settings.ledger, create=False)
    except LedgerMissingError as missing:
        console.print(f"The ledger {missing.ledger} does not exist yet: the first release makes it.", soft_wrap=True)
        return True
    problems = ledger.verify()
    if summaries:
        console.print(_build_figures(summaries))
    else:
        console.print("The ledger is empty: no data set has been released yet.")
    if dataset is not None:
        console.print(_build_entries(ledger, dataset))
        if ledger.periods(dataset):
            console.print(_build_periods(ledger, dataset))
    for problem in problems:
        console.print(f"PROBLEM: {problem}", style="red", soft_wrap=True)
    if not problems:
        console.print(Text.assemble(_VERIFIED, "chain and sums recomputed, no problem found."))
    console.print(f"Ledger: {ledger.name}", style="dim", soft_wrap=True)
    console.print("Certificates are checked by `privsyn ledger verify`.", style="dim", soft_wrap=True)
    return not problems


def _build_figures(summaries: Sequence[DatasetSummary]) -> Table:
    """Return the budgets; below, at which delta epsilons stand, and which accountant turns whose rho into them."""
    from privsyn.api.ledger import HEADINGS, Budgets
    from privsyn.ledgers.audit import AT_CAP_DELTA

    names = {a: ", ".join(s.dataset for s in summaries if s.accountant == a) for a in ("gaussian", "tight")}
    lines = (AT_CAP_DELTA, *(f"epsilon by accountant {a}: {sets}" for a, sets in names.items() if sets))
    table = Table(*HEADINGS, title="Privacy ledger", caption=Text("\n".join(lines)), caption_justify="left")
    for row in Budgets(tuple(summaries)).rows:
        table.add_row(*row)
    return table


def _build_entries(ledger: Ledger, dataset: str) -> Table:
    table = Table("#", "when (UTC)", "run", "step", "event", "rho", title=f"Entries of {dataset}")
    for row in ledger.export(dataset):
        step, moment = str(row["step"]).replace("_", " "), str(row["created"])[:19].replace("T", " ")
        numerator, denominator = map(int, str(row["rho"]).split("/"))
        table.add_row(
            str(row["id"]), moment, str(row["run"]), step, str(row["event"]), f"{numerator / denominator:.6g}"
        )
    return table


def _build_periods(ledger: Ledger, dataset: str) -> Table:
    """Return where each period stands, in the order in which they were begun."""
    table = Table("period", "run", "state", "since (UTC)", title=f"Periods of {dataset}")
    reasons = {e.run: str(e.detail["early"]) for e in ledger.entries(dataset) if "early" in e.detail}
    for row in {row.period: row for row in ledger.periods(dataset)}.values():
        state = "released" if row.released else "begun, not finished"
        state += f"; before it began: {reasons[row.run]}" if row.run in reasons else ""
        table.add_row(row.period, row.run, state, row.created[:19].replace("T", " "))
    return table

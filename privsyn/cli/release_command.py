"""``privsyn release`` and ``privsyn improve``: arguments, progress and the closing summary.

Before a data set's first charge a terminal is shown what the release costs, its lifetime cap and a forecast, and asked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from privsyn.base.errors import RequestError
from privsyn.base.wording import draw_bar, make_printable
from privsyn.cli.common import (
    COMMAND_LINE,
    AsFlow,
    AsJson,
    Debug,
    OutFolder,
    PrivateTable,
    RunsFolder,
    SecondName,
    SpecEpsilon,
    SpecPath,
    get_command_name,
    is_interactive,
    make_folder,
    open_results,
    parse_table,
    people,
    print_answer,
    print_errors,
    read_settings,
    warn,
    warn_of_epsilon,
)

if TYPE_CHECKING:
    from privsyn.base.settings import Settings
    from privsyn.data_contracts.release_spec import ReleaseSpec
    from privsyn.engine.checked_tables import State
    from privsyn.engine.plan import Plan
    from privsyn.engine.proposal import Proposal
    from privsyn.evaluation.forecasts.forecast import Forecast
    from privsyn.ledgers.audit import DatasetSummary
    from privsyn.publish.folder import ReleaseSummary


def release_command(
    spec: SpecPath,
    data: PrivateTable = None,
    out: OutFolder = None,
    epsilon: SpecEpsilon = None,
    delta: Annotated[float | None, typer.Option(help="Delta instead of the spec's.")] = None,
    seed_synthesis: Annotated[int | None, typer.Option(help="Seed of the post-processing, never of the noise.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw new noise even if a release exists. Costs budget.")
    ] = False,
    engine: Annotated[str | None, typer.Option(metavar="ENGINE", help="local or dask, with the same result.")] = None,
    period: Annotated[
        str | None,
        typer.Option(metavar="PERIOD", help="Release this period, such as 2026-11, if it is not released yet."),
    ] = None,
    early: Annotated[
        str | None,
        typer.Option(metavar="WHY", help="Reason for releasing a period before it begins; recorded in the ledger."),
    ] = None,
    new_dataset: SecondName = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a data set's first charge, which fixes its cap.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print price, cap and a forecast, and stop. Reads and charges nothing.")
    ] = False,
    rows_about: Annotated[
        int | None,
        typer.Option(metavar="N", help="Approximate rows of the table, a public number, for the forecast."),
    ] = None,
    as_json: AsJson = False,
    prefect: AsFlow = False,
    debug: Debug = False,
) -> None:
    """Release a synthetic table from a private table.

    SPEC names the private table. The release is differentially private.
    It runs in this process, or as a Prefect flow if a server is configured (PREFECT_API_URL or a profile).
    On a terminal, it shows price, cap and a forecast and asks before a data set's first charge.
    """
    start = time.monotonic()
    with print_errors(debug=debug, out=out):
        from privsyn.api.release import propose_release
        from privsyn.engine.choose_accountant import read_dataset_summary
        from privsyn.specs.spec_file import load_spec, override_options

        table = parse_table(data, "--data")
        settings = read_settings(out)  # a wrong variable is refused before anything starts
        asked = override_options(load_spec(spec), epsilon, delta, table, seed_synthesis, engine)
        warn_of_epsilon(asked.privacy.epsilon)
        proposal = propose_release(asked, settings, fresh=fresh, period=period, early=early, new_dataset=new_dataset)
        if dry_run:
            first_charge = look_ahead(proposal)
            forecasts, results = simulate_sizes(first_charge.spec, rows_about), open_results(as_json=as_json)
            if as_json:
                print_answer(json.dumps(first_charge.as_json(forecasts)))
            print_price(first_charge, results)
            print_forecasts(first_charge.spec, forecasts, results)
            people.print("A dry run: nothing was read, nothing was charged.")
            return
        if not yes and is_interactive() and read_dataset_summary(asked.dataset, settings) is None:
            first_charge = look_ahead(proposal)
            confirm(first_charge, rows_about)
            start = time.monotonic()  # what a person took to answer is no time of the run
        if out is not None:  # not before: a no leaves no trace
            make_folder(settings)
        with _end_if_released(asked.dataset, settings, as_json=as_json):
            summary = run_here_or_in_prefect(proposal, prefect=prefect)
        show_summary(proposal, summary, start, as_json=as_json)
        print_misread(Path(summary.private), spec)
        if summary.rows == 0 and asked.mechanism.synthesis.rows == "auto":
            warn(
                f"the release has 0 rows: the noisy total is zero, since epsilon {asked.privacy.epsilon:g} is too "
                "small for a table of this size. What was spent stays spent."
            )


def run_here_or_in_prefect(proposal: Proposal, *, prefect: bool) -> ReleaseSummary:
    """Return the release as a Prefect flow, where that is asked for or a server is configured, else in this process."""
    from privsyn.engine.admission import check_request
    from privsyn.server.environment import is_server_configured

    if not (prefect or is_server_configured()):
        return _run_here(proposal)
    check_request(proposal)  # what is wrong is said before a server starts
    for line in _describe_new_name(proposal):
        people.print(line, soft_wrap=True)
    return _run_flow(proposal)


def show_summary(proposal: Proposal, summary: ReleaseSummary, start: float, *, as_json: bool) -> None:
    """Print the release's JSON object, if asked for, and its summary for people; ``start``: by the monotonic clock."""
    seconds = round(time.monotonic() - start, 1)
    if as_json:
        shown = _as_json(proposal.spec.dataset, proposal.settings, summary)
        print_answer(json.dumps({**shown, "seconds": seconds}))
    _print_summary(proposal, summary, seconds, open_results(as_json=as_json))
    _print_relations(proposal.plan, summary)


def _print_relations(plan: Plan, summary: ReleaseSummary) -> None:
    """Say so where no two columns were counted together."""
    from privsyn.data_contracts.certificate import explain_missing_relations
    from privsyn.publish.certificate_of_run import list_measured_relations
    from privsyn.storage.released_files import read_certificate

    try:
        certificate = read_certificate(Path(summary.released))
    except RequestError:
        return  # what is not private is told elsewhere
    if list_measured_relations(plan, certificate.stages) == []:
        warn(f"{certificate.relations or explain_missing_relations(prior=certificate.prior is not None)}.")


def _describe_new_name(proposal: Proposal) -> list[str]:
    """Return what to say where the ledger does not know the name: its cap cannot be changed later."""
    from privsyn.engine.choose_accountant import read_dataset_summary

    spec = proposal.spec
    if read_dataset_summary(spec.dataset, proposal.settings) is not None:
        return []
    cap = spec.budget
    return [
        f"This opens the data set {spec.dataset!r} and sets its lifetime cap for good: epsilon {cap.epsilon:g}, "
        f"delta {cap.delta:g}."
    ]


@contextmanager
def _end_if_released(dataset: str, settings: Settings, *, as_json: bool) -> Iterator[None]:
    """Say so, and end with 0, where the period is released already; with JSON, print the earlier release's object."""
    from privsyn.base.errors import PeriodReleasedError

    try:
        yield
    except PeriodReleasedError as done:
        from privsyn.publish.folder import read_summary

        summary = read_summary(done.run, settings)
        people.print(done.paragraph(COMMAND_LINE), soft_wrap=True)
        elsewhere = f"Its released folder is not in {settings.released_root}: look in the folder that --out named then."
        people.print(elsewhere if summary is None else f"  {summary.released}", soft_wrap=True)
        if as_json:
            shown = {"run": done.run} if summary is None else _as_json(dataset, settings, summary)
            print_answer(json.dumps({**shown, "seconds": 0.0}))
        raise typer.Exit(0) from None


def _run_here(proposal: Proposal) -> ReleaseSummary:
    """Return the release in this process, which says so once nothing is wrong with the request."""
    from privsyn.api.release import run_proposal
    from privsyn.engine.progress import show_progress_bars

    with show_progress_bars(proposal.plan.steps, people) as report:
        first = [
            "Running in this process: no Prefect server is configured (--prefect starts one).",
            *_describe_new_name(proposal),
        ]

        def report_first_lines(step: str, done: int, total: int) -> None:
            while first:
                people.print(first.pop(0), soft_wrap=True)
            report(step, done, total)

        return run_proposal(replace(proposal, report=report_first_lines, warn=warn))


def _run_flow(proposal: Proposal) -> ReleaseSummary:
    from privsyn.engine.progress import show_progress_bars

    people.print("Starting Prefect ...", style="dim")
    from privsyn.server.temporary_server import start_temporary_server, translate_server_loss

    with start_temporary_server():
        from privsyn.flows.private_errors import use_settings
        from privsyn.flows.release import release, report_steps
        from privsyn.flows.schedule import scheduled_release
    plan, spec = proposal.plan, proposal.spec
    with (
        translate_server_loss(),
        use_settings(proposal.settings),
        show_progress_bars(plan.steps, people) as report,
        report_steps(report),
    ):
        if plan.period is not None:
            return scheduled_release(spec, period=plan.period, early=proposal.early, new_dataset=proposal.new_dataset)
        return release(spec, fresh=proposal.fresh, new_dataset=proposal.new_dataset)


def _as_json(dataset: str, settings: Settings, summary: ReleaseSummary) -> dict[str, Any]:
    """Return the figures of the release, and what is left of the data set's budget at the cap's delta."""
    from privsyn.ledgers.ledger import Ledger

    state = Ledger(settings.ledger).summary(dataset)[0]
    remaining = {"epsilon": state.remaining_epsilon, "delta": state.cap.delta, "rho": float(state.cap_rho - state.rho)}
    return {**summary.model_dump(mode="json"), "budget_left": remaining}


def _print_summary(proposal: Proposal, summary: ReleaseSummary, seconds: float, results: Console) -> None:
    from privsyn.ledgers.ledger import Ledger

    spec, settings = proposal.spec, proposal.settings
    state = Ledger(settings.ledger).summary(spec.dataset)[0]
    drawn = ", ".join(s.replace("_", " ") for s in summary.drawn)
    nothing = "nothing: every noisy table was there already, no noise was drawn"
    cost = f"rho {summary.rho:.4g} at most; noise drawn for {drawn}" if drawn else nothing
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    columns, unmeasured = len(spec.released_columns), len(spec.unmeasured_columns)
    random = f" ({unmeasured} of them not measured: drawn at random)" if unmeasured else ""
    grid.add_row("Released", f"{summary.rows:,} synthetic rows, {columns} columns{random}, run {summary.run}")
    promise = f"({summary.epsilon:g}, {summary.delta:g})-differential privacy"
    grid.add_row("Promise", f"{promise} for adding or removing {spec.describe_unit()}")
    grid.add_row("This run cost", cost)
    grid.add_row("Budget", f"{draw_bar(state.rho / state.cap_rho, 24)} {state.use}")
    grid.add_row("", state.epsilon_words)
    grid.add_row("Files", f"{summary.released}  (publish)")
    grid.add_row("", f"{summary.private}  (keep: private)")
    grid.add_row("Time", f"{seconds:g} s")
    results.print(Panel(grid, title="privsyn release", border_style="green", expand=False))
    results.print("Look next at:", style="bold")
    results.print(f"  {Path(summary.released) / 'README.md'}   what the release is, in plain words", soft_wrap=True)
    table = Path(summary.released) / "synthetic.parquet"
    results.print(f"  {table if table.exists() else table.with_suffix('')}   the table", soft_wrap=True)
    default = type(settings).model_fields["out"].default
    where = "" if settings.out == default else f" --out {settings.out}"
    results.print(
        f"  {get_command_name()} evaluate {summary.run}{where}   how good it is: a private report", soft_wrap=True
    )
    results.print(f"  {get_command_name()} ledger show {spec.dataset}   every charge so far", soft_wrap=True)


A_FEW = 0.02
"""Share of a column's values, or of all records, above which a release says on the terminal that it was repaired."""


def print_misread(private_folder: Path, spec: Path) -> None:
    """Say in one line which columns had how much repaired or nulled, to the person who holds the data.

    Private figures stand on an interactive terminal and nowhere else: a pipe, a file, a log and a server's page outlive
    the moment and have other readers.
    """
    from privsyn.publish.folder import count_repairs
    from privsyn.specs.misread import list_misread_columns

    if not is_on_terminal():
        return
    repairs = count_repairs(private_folder)
    columns = [misread.sentence() for misread in list_misread_columns(repairs.counts, repairs.rows, A_FEW)]
    if columns:
        cure = f"Where that is not meant, the spec is wrong: privsyn spec check {spec} --data TABLE shows why."
        line = f"values were repaired or nulled; {'; '.join(columns)}. {cure} Do not share this line."
        people.print(Text.assemble(("PRIVATE: ", "bold red"), make_printable(line)), soft_wrap=True)


def improve_command(
    release: Annotated[str, typer.Argument(metavar="RUN", help="Run name, or released folder.")],
    epsilon: Annotated[float, typer.Option(help="Price of the new looks alone.")],
    data: Annotated[str | None, typer.Option(metavar="PATH", help="Where the unchanged private table is now.")] = None,
    out: RunsFolder = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw new noise even if this improvement exists. Costs budget.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Accepted as for release; an improvement never asks, since the cap is set."),
    ] = False,
    as_json: AsJson = False,
    prefect: AsFlow = False,
    debug: Debug = False,
) -> None:
    """Spend more on a release to make it better.

    It measures more of the unchanged table and pools all counts. Only the new looks are charged.
    The result is a new release. Its epsilon covers all looks together.
    """
    start = time.monotonic()
    with print_errors(debug=debug, out=out):
        from privsyn.api.release import propose_release
        from privsyn.engine.improved_run import build_improved_spec

        table, settings = parse_table(data, "--data"), read_settings(out)
        asked = build_improved_spec(release, settings, epsilon, table)
        warn_of_epsilon(asked.privacy.epsilon)
        proposal = propose_release(asked, settings, fresh=fresh)
        summary = run_here_or_in_prefect(proposal, prefect=prefect)
        show_summary(proposal, summary, start, as_json=as_json)


FORECAST_SIZES = (3_000, 30_000, 300)
"""Numbers of rows of a forecast where nobody said how many the table has, the most telling first."""

FORECAST_SECONDS = 5.0
"""Seconds of simulating after which no larger table is simulated."""

NO_PAIR = 0.5
"""A mean number of measured pairs below which none is likely."""

QUICK_MECHANISMS = frozenset({"privsyn", "independent"})
"""Mechanisms that are simulated unasked: the others take minutes."""


CHECKED = {
    "checked": "`privsyn spec check SPEC --data TABLE` was run on this table with this spec.",
    "changed": "`privsyn spec check SPEC --data TABLE` was run on this table before the spec or the table changed.",
    "not noted": "There is no record here that `privsyn spec check SPEC --data TABLE` was run on this table. It shows, "
    "at no cost, which values the spec would change.",
}
"""What the question before the first charge says of the table."""


class FirstCharge(NamedTuple):
    """What a release would cost, and what the ledger knows: ``state`` is None where the name is new to it.

    ``checked``: whether the table was checked with the spec.  ``no_pairs``: whether its plan measures no pair of
    columns, whatever the rows.  ``use``: how much of the cap is used after the release, as text.
    """

    spec: ReleaseSpec
    rho: Fraction
    state: DatasetSummary | None
    checked: State
    no_pairs: bool
    use: tuple[str, str]

    @property
    def share(self) -> float:
        """Epsilon at the cap's delta of this release alone, which is what the ledger counts."""
        from privsyn.tasks.privacy.accountant import cap_accountant, convert_rho_to_epsilon

        accountant = cap_accountant(self.spec.effective_accountant) if self.state is None else self.state.accountant
        return convert_rho_to_epsilon(self.rho, self.spec.budget.delta, accountant)

    def as_json(self, forecasts: Sequence[Forecast]) -> dict[str, Any]:
        """Return the same, JSON-ready."""
        privacy, cap = self.spec.privacy, self.spec.budget
        used = 0.0 if self.state is None else self.state.epsilon
        return {
            "dry_run": True,
            "dataset": self.spec.dataset,
            "new": self.state is None,
            "price": {"epsilon": privacy.epsilon, "delta": privacy.delta, "rho": float(self.rho)},
            "cap": {"epsilon": cap.epsilon, "delta": cap.delta},
            "counted": {"price": self.share, "used": used},
            "checked": self.checked,
            "no_pairs": self.no_pairs,
            "forecasts": [forecast.as_json() for forecast in forecasts],
        }


def look_ahead(proposal: Proposal) -> FirstCharge:
    """Return the price and cap of a release, from public facts and the ledger; nothing is read or written."""
    from privsyn.api.check import measures_no_pair
    from privsyn.engine.admission import REQUEST_CHECKS, admit
    from privsyn.engine.checked_tables import find_state
    from privsyn.engine.checks import check_whole_cap
    from privsyn.engine.choose_accountant import describe_use_after, read_dataset_summary

    admit(REQUEST_CHECKS, proposal)
    checked = find_state(proposal.spec, proposal.settings)
    state = read_dataset_summary(proposal.spec.dataset, proposal.settings)
    if state is None:
        check_whole_cap(proposal.plan.request)
    use = describe_use_after(proposal.spec, proposal.plan.rho, state)
    return FirstCharge(proposal.spec, proposal.plan.rho, state, checked, measures_no_pair(proposal.plan), use)


def simulate_sizes(spec: ReleaseSpec, rows_about: int | None) -> list[Forecast]:
    """Return a forecast for each size; none where the mechanism takes long and nobody said how many rows."""
    from privsyn.engine.progress import show_bar
    from privsyn.evaluation.forecasts.forecast import forecast

    if rows_about is None and spec.mechanism.name not in QUICK_MECHANISMS:
        return []
    known = count_public_records(spec) if rows_about is None else rows_about
    start, forecasts = time.monotonic(), []
    for rows in FORECAST_SIZES if known is None else (known,):
        if time.monotonic() - start > FORECAST_SECONDS:
            break
        with show_bar(f"simulating {rows:,} rows") as report:
            seeds = 1 if known is None else 2
            forecasts.append(forecast(spec, rows, epsilons=(), seeds=seeds, progress=report))
    return sorted(forecasts, key=lambda forecast: forecast.rows)


def count_public_records(spec: ReleaseSpec) -> int | None:
    """Return how many rows the spec itself says that the table has, or persons of linked rows; None where it does not.

    A known total of all rows says so, else the number of rows to make.  For linked rows it is the fewest possible
    persons, with ``unit.max_records`` rows each.
    """
    from privsyn.evaluation.forecasts.forecast import MOST_ROWS

    made = spec.mechanism.synthesis.rows
    stated = [total.rows for total in spec.totals if total.rows is not None]
    rows = next(iter(stated), None if made == "auto" else made)
    if rows is None:
        return None
    most = spec.unit.max_records if spec.panel is not None else None
    return min(max(-(-rows // (most or 1)), 1), MOST_ROWS)


def print_price(first_charge: FirstCharge, console: Console) -> None:
    """Print price and cap."""
    spec, state = first_charge.spec, first_charge.state
    privacy, cap = spec.privacy, spec.budget
    price = (
        f"epsilon {privacy.epsilon:g} at delta {privacy.delta:g} (rho {float(first_charge.rho):.4g}, "
        f"accountant {spec.effective_accountant}) at most"
    )
    whole = f"epsilon {cap.epsilon:g} at delta {cap.delta:g}"
    lines = [("Price", price)]
    used = [(name, f"{words}.") for name, words in zip(("After", ""), first_charge.use, strict=True)]
    if state is None:
        lines += [
            ("Cap", f"{whole}, for all releases of {spec.dataset!r} together."),
            ("", "The first charge sets it for good: it cannot be changed later."),
            *used,
            (
                "New name",
                f"The ledger does not know {spec.dataset!r}, which gets a budget of its own. If the table or a part of "
                "it was released under another name, both add up for its people; no program can detect that.",
            ),
        ]
    else:
        lines += [("Cap", f"{whole}, set for good by the first charge."), ("Before", f"{state.use}."), *used]
    lines.append(("Table", CHECKED[first_charge.checked]))
    if first_charge.no_pairs:
        lines.append(("Pairs", "No pair of columns will be measured: the release describes single columns only."))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in lines:
        grid.add_row(name, text)
    title = f"Before the first charge of {spec.dataset!r}" if state is None else f"A release of {spec.dataset!r}"
    console.print(Panel(grid, title=title, border_style="yellow", expand=False))


def print_forecasts(spec: ReleaseSpec, forecasts: Sequence[Forecast], console: Console) -> None:
    """Print what the release would be worth, by the number of rows, and where no relation would be measured."""
    from privsyn.cli.forecasts import build_sizes_table

    if not forecasts:
        reason = f"No forecast: the mechanism {spec.mechanism.name} takes long to simulate. --rows-about N makes one."
        console.print(reason, soft_wrap=True)
        return
    console.print(build_sizes_table(forecasts))
    guessed = "~: a guess, from made-up rows. " if forecasts[0].made_up else ""
    console.print(f"{guessed}By column: privsyn spec check SPEC --rows-about N", style="dim", soft_wrap=True)
    for forecast in forecasts:
        if forecast.at[0].pairs < NO_PAIR and forecast.at[0].all_pairs:
            console.print(
                f"With about {forecast.rows:,} rows, no relation between columns would be measured, "
                "only single columns.",
                style="bold red",
                soft_wrap=True,
            )


def confirm(first_charge: FirstCharge, rows_about: int | None) -> None:
    """Show what lies ahead and ask.  Ends with exit code 1 for a no, before anything was read."""
    spec = first_charge.spec
    print_price(first_charge, people)
    print_forecasts(spec, simulate_sizes(spec, rows_about), people)
    try:
        wanted = typer.confirm(
            f"Set the cap of {spec.dataset!r} to epsilon {spec.budget.epsilon:g} for good, and release?", err=True
        )
    except typer.Abort:
        people.print()
        wanted = False
    if not wanted:
        people.print("Nothing was read, nothing was charged. (--yes does not ask; --dry-run only prints this.)")
        raise typer.Exit(1)


def is_on_terminal() -> bool:
    """Return whether standard error is a terminal, even if variables ask Rich to pretend."""
    return sys.stderr.isatty()

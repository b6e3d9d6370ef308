"""Before a data set's first charge: what a release costs, its lifetime cap, and a forecast; and the question."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from privsyn.cli.common import people

if TYPE_CHECKING:
    from privsyn.base.settings import Settings
    from privsyn.data_contracts.release_spec import ReleaseSpec
    from privsyn.engine.candidate import Candidate
    from privsyn.forecasts.forecast import Forecast
    from privsyn.ledgers.dataset_summary import DatasetSummary

SIZES = (300, 3_000, 30_000)
"""Numbers of rows of a forecast where nobody said how many the table has."""

PATIENCE = 5.0
"""Seconds of simulating after which no larger table is simulated."""

NO_PAIR = 0.5
"""A mean number of measured pairs below which none is likely."""

QUICK_MECHANISMS = frozenset({"privsyn", "independent"})
"""Mechanisms that are simulated unasked: the others take minutes."""


class FirstCharge(NamedTuple):
    """What a release would cost, and what the ledger knows: ``state`` is None where the name is new to it."""

    request: ReleaseSpec
    rho: Fraction
    state: DatasetSummary | None

    @property
    def share(self) -> float:
        """Epsilon at the cap's delta of this release alone, which is what the ledger counts."""
        return _convert(self.request, self.rho)

    def as_json(self, forecasts: Sequence[Forecast]) -> dict[str, Any]:
        """Return the same, JSON-ready."""
        privacy, cap = self.request.privacy, self.request.budget
        used = 0.0 if self.state is None else self.state.epsilon
        return {
            "dry_run": True,
            "dataset": self.request.dataset,
            "new": self.state is None,
            "price": {"epsilon": privacy.epsilon, "delta": privacy.delta, "rho": float(self.rho)},
            "cap": {"epsilon": cap.epsilon, "delta": cap.delta},
            "counted": {"price": self.share, "used": used},
            "forecasts": [made.as_json() for made in forecasts],
        }


def look_ahead(candidate: Candidate) -> FirstCharge:
    """Return price and cap of a release, from public things and the ledger; nothing is read or written."""
    from privsyn.engine.admission import REQUEST_CHECKS, admit
    from privsyn.engine.checks import check_whole_cap

    admit(candidate, REQUEST_CHECKS)
    state = find_state(candidate.spec.dataset, candidate.settings)
    if state is None:
        check_whole_cap(candidate.plan.request)
    return FirstCharge(candidate.spec, candidate.plan.rho, state)


def find_state(dataset: str, settings: Settings) -> DatasetSummary | None:
    """Return what the ledger knows of a data set; None for a name that is new to it."""
    from privsyn.base.errors import LedgerMissingError
    from privsyn.ledgers.ledger import Ledger

    try:
        found = Ledger(settings.ledger, create=False).summary(dataset)
    except LedgerMissingError:
        return None
    return found[0] if found else None


def simulate_sizes(request: ReleaseSpec, rows_about: int | None) -> list[Forecast]:
    """Return a forecast for each size; none where the mechanism takes long and nobody said how many rows."""
    from privsyn.api.progress import show_bar
    from privsyn.forecasts.forecast import forecast

    if rows_about is None and request.mechanism.name not in QUICK_MECHANISMS:
        return []
    start, found = time.monotonic(), []
    for rows in SIZES if rows_about is None else (rows_about,):
        if time.monotonic() - start > PATIENCE:
            break
        with show_bar(f"simulating {rows:,} rows") as report:
            seeds = 1 if rows_about is None else 2
            found.append(forecast(request, rows, epsilons=(), seeds=seeds, progress=report))
    return found


def print_price(ahead: FirstCharge, console: Console) -> None:
    """Print price and cap."""
    request, state = ahead.request, ahead.state
    privacy, cap = request.privacy, request.budget
    price = f"epsilon {privacy.epsilon:g} at delta {privacy.delta:g} (rho {float(ahead.rho):.4g}) at most"
    whole = f"epsilon {cap.epsilon:g} at delta {cap.delta:g}"
    counted = f"This release uses {ahead.share:.3g} of {cap.epsilon:g}."
    if privacy.delta != cap.delta:
        counted = f"{counted[:-1]}: {explain_counting(privacy.epsilon, privacy.delta, cap.delta)}."
    lines = [("Price", price)]
    if state is None:
        lines += [
            (
                "Cap",
                f"{whole}, for all releases of {request.dataset!r} together.",
            ),
            ("", "The first charge sets it for good: it cannot be changed later."),
            ("", counted),
            (
                "New name",
                f"The ledger does not know {request.dataset!r}: it gets a budget of its own. So would a part of a "
                "table that was released under another name. Nothing here can tell that, and what is told of its "
                "people adds up.",
            ),
        ]
    else:
        together = _convert(request, ahead.rho + state.rho)
        lines += [
            ("Cap", f"{whole}, set for good by the first charge."),
            ("", counted),
            ("", f"Used so far: {state.epsilon:.3g}; with this one {together:.3g} at most."),
        ]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in lines:
        grid.add_row(name, text)
    title = f"Before the first charge of {request.dataset!r}" if state is None else f"A release of {request.dataset!r}"
    console.print(Panel(grid, title=title, border_style="yellow", expand=False))


def print_forecasts(request: ReleaseSpec, forecasts: Sequence[Forecast], console: Console) -> None:
    """Print what the release would be worth, by the number of rows, and where no relation would be measured."""
    from privsyn.cli.forecast_tables import build_sizes_table

    if not forecasts:
        told = f"No forecast: the mechanism {request.mechanism.name} takes long to simulate. --rows-about N makes one."
        console.print(told, soft_wrap=True)
        return
    console.print(build_sizes_table(forecasts))
    guessed = "~: a guess, from made-up rows. " if forecasts[0].made_up else ""
    console.print(f"{guessed}By column: privsyn spec check SPEC --rows-about N", style="dim", soft_wrap=True)
    for made in forecasts:
        if made.at[0].pairs < NO_PAIR and made.at[0].all_pairs:
            console.print(
                f"With about {made.rows:,} rows no relation between columns would be measured: only single columns "
                "could be read from the table.",
                style="bold red",
                soft_wrap=True,
            )


def confirm(ahead: FirstCharge, rows_about: int | None) -> None:
    """Show what lies ahead and ask.  Ends with exit code 1 for a no, before anything was read."""
    request = ahead.request
    print_price(ahead, people)
    print_forecasts(request, simulate_sizes(request, rows_about), people)
    try:
        wanted = typer.confirm(
            f"Set the cap of {request.dataset!r} to epsilon {request.budget.epsilon:g} for good, and release?", err=True
        )
    except typer.Abort:
        people.print()
        wanted = False
    if not wanted:
        people.print("Nothing was read, nothing was charged. (--yes does not ask; --dry-run only prints this.)")
        raise typer.Exit(1)


def explain_counting(epsilon: float, delta: float, cap_delta: float) -> str:
    """Return why what is used of a cap is another number than the epsilon that was promised."""
    return (
        f"used is counted at the cap's delta of {cap_delta:g}, where the noise that promises epsilon {epsilon:g} at "
        f"{delta:g} has {'a smaller' if delta < cap_delta else 'a larger'} epsilon"
    )


def _convert(request: ReleaseSpec, rho: Fraction) -> float:
    """Return the epsilon at the cap's delta of so much rho, as the ledger shows it."""
    from privsyn.tasks.privacy.accountant import cap_accountant, convert_rho_to_epsilon

    return convert_rho_to_epsilon(rho, request.budget.delta, cap_accountant(request.accountant))

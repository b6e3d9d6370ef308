"""The budget of a data set as a bar and a table: other releases, this one, what is left of the cap."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.audit import Entry, charge_states
from privsyn.ledgers.dataset_summary import AT_CAP_DELTA, DatasetSummary
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.markdown import render_note
from privsyn.tasks.privacy.accountant import CapAccountant, convert_rho_to_epsilon

OTHERS, THIS, LEFT = "other releases", "this release", "left"
COLOURS = {OTHERS: "#0072B2", THIS: "#D55E00", LEFT: "#e4e4e4"}  # blue and vermilion of Okabe and Ito, and grey
_WIDTH, _BAR = 640, 32


@dataclass(frozen=True)
class Budget:
    """A data set's cap as rho, and the shares of it that add up to it; epsilons are at the cap's delta."""

    dataset: str
    cap: Guarantee
    accountant: CapAccountant
    cap_rho: Fraction
    others: Fraction
    this: Fraction

    @classmethod
    def of(cls, summary: DatasetSummary, entries: Sequence[Entry], keys: Collection[str]) -> Budget:
        """From the ledger's figures; ``keys``: the charges that this release rests on, whichever run paid them."""
        held = {key: state.rho for key, state in charge_states(entries).items() if state.holds}
        this = sum((held[key] for key in set(keys) & set(held)), Fraction(0))
        return cls(summary.dataset, summary.cap, summary.accountant, summary.cap_rho, summary.rho - this, this)

    @property
    def left(self) -> Fraction:
        """What no release has taken of the cap (rho, never below 0)."""
        return max(self.cap_rho - self.others - self.this, Fraction(0))

    def parts(self) -> dict[str, Fraction]:
        """Name -> rho, in the order of the bar."""
        return {OTHERS: self.others, THIS: self.this, LEFT: self.left}

    def share(self, rho: Fraction) -> float:
        """Return a price as a share of the cap, 0 to 1."""
        return float(rho / self.cap_rho)

    def epsilon(self, rho: Fraction) -> float:
        """Return what a total price of ``rho`` comes to by itself; 0 for nothing."""
        return convert_rho_to_epsilon(rho, self.cap.delta, self.accountant) if rho else 0.0


def read_budget(ledger: Ledger, dataset: str, keys: Collection[str] = ()) -> Budget | None:
    """Return the budget of ``dataset`` now; None if the ledger does not know it yet."""
    found = ledger.summary(dataset)
    return Budget.of(found[0], ledger.entries(dataset), keys) if found else None


def format_budget_page(budget: Budget, ledger: str, now: str) -> str:
    """Markdown: the bar, the table, and ``now``, what this run did to it; ``ledger``: its address for people."""
    return render_note(
        "budget.md.j2",
        budget=budget,
        bar=draw_bar_uri(budget),
        rows=[*budget.parts().items(), ("lifetime cap", budget.cap_rho)],
        percent=format_percent,
        at_cap_delta=AT_CAP_DELTA,
        ledger=ledger,
        now=now,
    )


def draw_bar_uri(budget: Budget) -> str:
    """Return the bar as an SVG picture in a data URI; the same budget gives the same bytes."""
    x, drawn = 0.0, []
    for name, rho in budget.parts().items():
        width = budget.share(rho) * _WIDTH
        drawn.append(f'<rect x="{x:.2f}" width="{width:.2f}" height="{_BAR}" fill="{COLOURS[name]}"/>')
        x += width
    legend = [
        f'<rect x="{i * 213}" y="{_BAR + 14}" width="12" height="12" fill="{COLOURS[name]}"/>'
        f'<text x="{i * 213 + 18}" y="{_BAR + 25}">{name}: {format_percent(budget.share(rho))}</text>'
        for i, (name, rho) in enumerate(budget.parts().items())
    ]
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 24}" height="{_BAR + 54}" '
        f'viewBox="-12 -12 {_WIDTH + 24} {_BAR + 54}" font-family="sans-serif" font-size="14">'
        f'<rect x="-12" y="-12" width="100%" height="100%" rx="6" fill="white"/>{"".join(drawn)}'
        f'<rect width="{_WIDTH}" height="{_BAR}" fill="none" stroke="#555"/>{"".join(legend)}</svg>'
    )
    return "data:image/svg+xml;base64," + b64encode(picture.encode()).decode("ascii")


def format_percent(share: float) -> str:
    """``9.1 %``; what is not nothing is never shown as nothing, and what is not all never as all."""
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.999 < share < 1:
        return "over 99.9 %"
    return f"{100 * share:.1f} %".replace(".0 %", " %")

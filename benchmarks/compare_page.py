"""The comparison with the peers as Markdown, in docs/results/peers.md; every run is in compare.jsonl."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare_store import Run, stopped
from benchmarks.pages import write_between
from benchmarks.peers import PEERS, SHORT
from privsyn.evaluation.comparison.compare_methods import METHODS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "results" / "peers.md"
BEGIN, END = "<!-- compare: begin -->", "<!-- compare: end -->"
REAL = "real rows"
"""The training rows in place of synthetic ones: what a perfect method would reach."""
DEFAULT = "default"
SHOWN = (0.2, 1.0)
"""The epsilons of the table of pairs."""

AIM = tuple(name for name in PEERS if name.startswith("aim"))


@dataclass(frozen=True)
class Column:
    """A figure: its name in the store, and how it is written."""

    name: str
    digits: str


PAIRS, SVM, CPU = Column("l1_2way", ".4f"), Column("svm", ".4f"), Column("cpu", ",.2f")
"""Errors, and CPU seconds: the smaller, the better."""


class Runs:
    """The runs of one comparison, by method, table and epsilon; only those of a method's newest stored version."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.all = list(runs)
        self.tables = list(dict.fromkeys(run.table for run in self.all))
        self.epsilons = sorted({run.epsilon for run in self.all if run.method != REAL})
        self.methods = [name for name in (*METHODS, *PEERS) if any(run.method == name for run in self.all)]
        self.version = {run.method: run.version for run in self.all}

    def of(self, method: str, table: str, epsilon: float) -> list[Run]:
        """Return the runs of one cell, of the version that was run last."""
        wanted = (method, table, epsilon, self.version.get(method))
        return [run for run in self.all if (run.method, run.table, run.epsilon, run.version) == wanted]

    def mean(self, method: str, table: str, epsilon: float, column: Column) -> float | None:
        """Return mean of a figure or cost over the seeds; None where no run has it."""
        found = values(self.of(method, table, epsilon), column)
        return statistics.fmean(found) if found else None

    def stopped(self, method: str, table: str, epsilon: float) -> Run | None:
        """Return the run that a limit stopped, at this or a smaller epsilon."""
        return stopped(self.all, method, self.version.get(method, ""), table, epsilon)


def values(runs: Sequence[Run], column: Column) -> list[float]:
    """Return a figure or cost of every run that is done and has it."""
    done = [run for run in runs if run.outcome == "done"]
    found = [run.cpu if column is CPU else run.figures.get(column.name) for run in done]
    return [value for value in found if value is not None]


def title(method: str) -> str:
    """Return a method's name on the page."""
    return PEERS[method].title if method in PEERS else METHODS[method].title


def lead(runs: Runs, table: str, epsilon: float, column: Column) -> str:
    """By how much the default is ahead of the best other method, and which that is; "" without both.

    The figures themselves where the other's error is so small that a share of it says nothing.
    """
    ours = runs.mean(DEFAULT, table, epsilon, column)
    others = {m: runs.mean(m, table, epsilon, column) for m in runs.methods if m != DEFAULT}
    known = {m: value for m, value in others.items() if value is not None}
    if ours is None or not known:
        return ""
    best = min(known, key=lambda m: known[m])
    if ours > 2 * known[best]:
        return f"{ours:{column.digits}} against {known[best]:{column.digits}}, {title(best)}"
    ahead = 1 - ours / known[best] if known[best] else 0.0  # both without an error
    return f"{ahead:+.0%} on {title(best)}"


def faster(runs: Runs, table: str, epsilon: float) -> str:
    """Return how many times fewer CPU seconds the default takes than the fastest AIM that finished."""
    ours = runs.mean(DEFAULT, table, epsilon, CPU)
    aims = [value for name in AIM if (value := runs.mean(name, table, epsilon, CPU)) is not None]
    if ours and aims:
        return f"{min(aims) / ours:,.0f}×"
    stopped = [PEERS[name].limits.seconds for name in AIM if runs.stopped(name, table, epsilon)]
    if ours and stopped:
        return f"over {min(stopped) / ours:,.0f}×"
    return ""


def list_pairs(runs: Runs) -> list[str]:
    """Return the mean error of pairs: a line a table and SHOWN epsilon, a column a method; the least is bold."""
    methods = [m for m in runs.methods if m in METHODS or m in SHORT]
    lines = ["| table | epsilon | " + " | ".join(map(title, methods)) + " |", "|---|---|" + "---|" * len(methods)]
    for table in runs.tables:
        for epsilon in (e for e in SHOWN if e in runs.epsilons):
            means = [runs.mean(method, table, epsilon, PAIRS) for method in methods]
            least = min((mean for mean in means if mean is not None), default=None)
            cells = []
            for method, mean in zip(methods, means, strict=True):
                text = "stopped" if mean is None and runs.stopped(method, table, epsilon) else ""
                text = text if mean is None else f"{mean:.3f}"
                cells.append(f"**{text}**" if mean is not None and mean == least else text)
            lines.append(f"| {table} | {epsilon:g} | " + " | ".join(cells) + " |")
    return lines


def page(runs: Runs) -> list[str]:
    """Return the generated part of the page."""
    machines = sorted({run.machine for run in runs.all})
    versions = [f"{PEERS[m].package} {runs.version[m]}" for m in runs.methods if m in PEERS]
    ours = runs.version.get(DEFAULT, "").partition(",")[0]
    return [
        f"PrivSyn Flows {ours}; {', '.join(dict.fromkeys(versions))}. On {'; '.join(machines)}.",
        "",
        *front(runs),
        "",
        "Mean L1 error of all pairs of columns. *Stopped*: a limit stopped the method at this or a smaller epsilon. "
        "Empty: not run.",
        "",
        *list_pairs(runs),
    ]


def front(runs: Runs) -> list[str]:
    """Return the verdicts: a line a table, by how much the default is ahead, **bold** where it is behind."""
    heads = [f"{name}, {epsilon:g}" for name in ("pairs", "SVM") for epsilon in runs.epsilons]
    lines = [
        "| table, epsilon | " + " | ".join(heads) + " | CPU s | AIM's |",
        "|---|" + "---|" * (len(heads) + 2),
    ]
    for table in runs.tables:
        leads = [short_lead(runs, table, epsilon, column) for column in (PAIRS, SVM) for epsilon in runs.epsilons]
        if any(leads):
            seconds = [s for epsilon in runs.epsilons if (s := runs.mean(DEFAULT, table, epsilon, CPU)) is not None]
            times = next((f for epsilon in runs.epsilons if (f := faster(runs, table, epsilon))), "")
            cost = f"{min(seconds):.2g} to {max(seconds):.2g}" if seconds else ""
            lines.append("| " + " | ".join([table, *leads, cost, times]) + " |")
    return lines


def short_lead(runs: Runs, table: str, epsilon: float, column: Column) -> str:
    """Return a lead without the other method's name, bold where the default is behind."""
    text = lead(runs, table, epsilon, column).split(" on ")[0]
    if " against " in text:
        ours, other = text.split(",")[0].split(" against ")
        behind = float(ours) > float(other)
        text = f"{ours} against {other}"
    else:
        behind = text.startswith("-")
    return f"**{text}**" if behind else text


def write(found: Iterable[Run], path: Path = PAGE) -> None:
    """Put the tables between the markers of the page."""
    write_between(path, (BEGIN, END), page(Runs(found)))

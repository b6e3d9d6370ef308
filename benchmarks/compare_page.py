"""The comparison with the peers as Markdown: all runs in docs/results/peers.md, verdicts in docs/results.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare_store import Run, stopped
from benchmarks.pages import write_between
from benchmarks.peers import PEERS, SHORT
from privsyn.comparison.methods import METHODS

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FRONT = DOCS / "results" / "peers.md", DOCS / "results.md"
BEGIN, END = "<!-- compare: begin -->", "<!-- compare: end -->"
REAL = "real rows"
"""The training rows in place of synthetic ones: what a perfect method would reach."""
DEFAULT = "default"
AIM = tuple(name for name in PEERS if name.startswith("aim"))


@dataclass(frozen=True)
class Column:
    """A figure: its name in the store, its head, how it is written, and which end is better (+1: the larger one)."""

    name: str
    head: str
    digits: str
    better: int = -1


FIGURES = (
    Column("l1_2way", "2-way L1", ".4f"),
    Column("l1_3way", "3-way L1", ".4f"),
    Column("range_query", "range query", ".5f"),
    Column("svm", "SVM error", ".4f"),
    Column("k_marginal", "k-marginal", ".1f", +1),
)
COSTS = (Column("wall", "wall s", ",.2f"), Column("cpu", "CPU s", ",.2f"), Column("peak_mb", "peak MB", ",.0f"))


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
    found = [run.figures.get(column.name) if column in FIGURES else getattr(run, column.name) for run in done]
    return [value for value in found if value is not None]


def title(method: str) -> str:
    """Return a method's name on the page."""
    return PEERS[method].title if method in PEERS else METHODS[method].title


def cell(runs: Sequence[Run], column: Column) -> str:
    """Return mean and, from two seeds on, standard deviation; empty where there is nothing."""
    found = values(runs, column)
    if not found:
        return ""
    spread = f" ±{statistics.stdev(found):{column.digits}}" if len(found) > 1 and column in FIGURES else ""
    return f"{statistics.fmean(found):{column.digits}}{spread}"


def why_not(runs: Runs, method: str, table: str, epsilon: float) -> str:
    """Return why a method has no figures at a table and epsilon; "" if it was simply not run."""
    run = runs.stopped(method, table, epsilon)
    if run is not None:
        allowed = PEERS[method].limits
        limit = f"{allowed.seconds / 60:.0f} minutes" if run.outcome == "time" else f"{allowed.megabytes / 1024:.0f} GB"
        if run.epsilon < epsilon:
            return f"not tried: did not finish within {limit} at epsilon {run.epsilon:g}"
        return f"did not finish within {limit} ({run.detail})"
    failed = [run for run in runs.of(method, table, epsilon) if run.outcome == "failed"]
    return f"failed: {failed[0].detail}".replace("|", "/") if failed else ""


def rows(runs: Runs, table: str) -> list[str]:
    """Return the lines of one table of data: a line an epsilon and method."""
    lines = []
    for epsilon in runs.epsilons:
        for method in runs.methods:
            found = runs.of(method, table, epsilon)
            done = [run for run in found if run.outcome == "done"]
            reason = "" if done else why_not(runs, method, table, epsilon)
            if not done and not reason:
                continue
            head = [table, f"{epsilon:g}", f"**{title(method)}**" if method == DEFAULT else title(method)]
            body = [cell(done, column) for column in (*FIGURES, *COSTS)] if done else [reason, *[""] * 7]
            seeds = f"{len(done)}, {len(found) - len(done)} not finished" if done and done != found else f"{len(done)}"
            lines.append("| " + " | ".join([*head, seeds, *body]) + " |")
    real = [run for run in runs.all if (run.method, run.table) == (REAL, table) and "svm" in run.figures]
    if real:
        errors = f"{real[0].figures['svm']:.4f} (most frequent label: {real[0].figures['majority']:.4f})"
        lines.append(f"| {table} | | trained on the real rows | | 0 | 0 | 0 | {errors} | | | | |")
    return lines


def lead(runs: Runs, table: str, epsilon: float, column: Column) -> str:
    """By how much the default is ahead of the best other method, and which that is; "" without both.

    The figures themselves for a score, and where the other's error is so small that a share of it says nothing.
    """
    ours = runs.mean(DEFAULT, table, epsilon, column)
    others = {m: runs.mean(m, table, epsilon, column) for m in runs.methods if m != DEFAULT}
    known = {m: value for m, value in others.items() if value is not None}
    if ours is None or not known:
        return ""
    best = max(known, key=lambda m: column.better * known[m])
    if column.better > 0 or ours > 2 * known[best]:
        return f"{ours:{column.digits}} against {known[best]:{column.digits}}, {title(best)}"
    ahead = 1 - ours / known[best] if known[best] else 0.0  # both without an error
    return f"{ahead:+.0%} on {title(best)}"


def faster(runs: Runs, table: str, epsilon: float) -> str:
    """Return how many times fewer CPU seconds the default takes than the fastest AIM that finished."""
    cpu = COSTS[1]
    ours = runs.mean(DEFAULT, table, epsilon, cpu)
    aims = [value for name in AIM if (value := runs.mean(name, table, epsilon, cpu)) is not None]
    if ours and aims:
        return f"{min(aims) / ours:,.0f}×"
    stopped = [PEERS[name].limits.seconds for name in AIM if runs.stopped(name, table, epsilon)]
    if ours and stopped:
        return f"over {min(stopped) / ours:,.0f}×"
    return ""


def missing(runs: Runs, table: str, epsilon: float) -> str:
    """Return the peers that were run elsewhere and neither run nor stopped at a limit at this table and epsilon."""
    ran = [m for m in SHORT if m in runs.methods]
    names = [m for m in ran if not runs.of(m, table, epsilon) and not runs.stopped(m, table, epsilon)]
    return ", ".join(title(m) for m in names)


def page(runs: Runs) -> list[str]:
    """Return the generated part of the page."""
    machines = sorted({run.machine for run in runs.all})
    versions = [f"{PEERS[m].package} {runs.version[m]}" for m in runs.methods if m in PEERS]
    lines = [
        f"`make compare`, on {'; '.join(machines)}. " + "Packages: " + ", ".join(dict.fromkeys(versions)) + ".",
        "",
        "How far the default is ahead of the best other method (+: its error is smaller by so much), and how many "
        "times fewer CPU seconds it takes than the fastest AIM (over: the limit stopped AIM, at this epsilon or at "
        "a smaller one, which takes it less time); against those peers only that have been run:",
        "",
        "| table | epsilon | " + " | ".join(column.head for column in FIGURES) + " | than AIM | not run |",
        "|---|---|" + "---|" * (len(FIGURES) + 2),
    ]
    for table in runs.tables:
        for epsilon in runs.epsilons:
            leads = [lead(runs, table, epsilon, column) for column in FIGURES]
            if any(leads):
                cells = [table, f"{epsilon:g}", *leads, faster(runs, table, epsilon), missing(runs, table, epsilon)]
                lines.append("| " + " | ".join(cells) + " |")
    never = ", ".join(title(m) for m in SHORT if m not in runs.methods)
    lines += [
        "",
        *([f"Not run at all yet: {never}.", ""] if never else []),
        "All runs: mean ± standard deviation over the seeds; seconds and peak memory are means. Other work on the "
        "machine lengthened the wall times, CPU seconds hardly.",
        "",
        "| table | epsilon | method | seeds | " + " | ".join(c.head for c in (*FIGURES, *COSTS)) + " |",
        "|---|---|---|---|" + "---|" * len((*FIGURES, *COSTS)),
    ]
    for table in runs.tables:
        lines += rows(runs, table)
    return lines


def front(runs: Runs) -> list[str]:
    """Return the verdicts: a line a table, by how much the default is ahead, **bold** where it is behind."""
    pairs, svm, cpu = FIGURES[0], FIGURES[3], COSTS[1]
    heads = [f"{name}, {epsilon:g}" for name in ("pairs", "SVM") for epsilon in runs.epsilons]
    lines = [
        "| table, epsilon | " + " | ".join(heads) + " | CPU s | AIM's |",
        "|---|" + "---|" * (len(heads) + 2),
    ]
    for table in runs.tables:
        leads = [short_lead(runs, table, epsilon, column) for column in (pairs, svm) for epsilon in runs.epsilons]
        if any(leads):
            seconds = [s for epsilon in runs.epsilons if (s := runs.mean(DEFAULT, table, epsilon, cpu)) is not None]
            times = next((f for epsilon in runs.epsilons if (f := faster(runs, table, epsilon))), "")
            cost = f"{min(seconds):.2g} to {max(seconds):.2g}" if seconds else ""
            lines.append("| " + " | ".join([table, *leads, cost, times]) + " |")
    return lines


def short_lead(runs: Runs, table: str, epsilon: float, column: Column) -> str:
    """Return a lead without the other method's name, bold where the default is behind."""
    text = lead(runs, table, epsilon, column).split(" on ")[0]
    if " against " in text:
        ours, other = text.split(",")[0].split(" against ")
        behind = column.better * (float(ours) - float(other)) < 0
        text = f"{ours} against {other}"
    else:
        behind = text.startswith("-")
    return f"**{text}**" if behind else text


def write(found: Iterable[Run], page_path: Path = PAGE, front_path: Path = FRONT) -> None:
    """Put the tables between the markers of both pages."""
    runs = Runs(found)
    for path, lines in ((page_path, page(runs)), (front_path, front(runs))):
        write_between(path, (BEGIN, END), lines)

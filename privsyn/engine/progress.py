"""Progress and tables in a terminal or a notebook, with all texts escaped.  Progress tells nothing of private rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from privsyn.engine.execute import ReportProgress
    from privsyn.engine.step import Step


def is_in_notebook() -> bool:
    """Return whether this process is a notebook kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def format_html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], mark: str = "") -> str:
    """Return a plain HTML table of texts; ``mark``: a word to mark wherever it occurs in a cell."""
    head = "".join(f"<th>{escape(h)}</th>" for h in headings)
    body = "".join("<tr>" + "".join(f"<td>{mark_up(c, mark)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def mark_up(text: str, word: str) -> str:
    """Return the text as HTML, with ``word`` marked unless it is empty."""
    shown = escape(text)
    return shown.replace(escape(word), f"<mark>{escape(word)}</mark>") if word else shown


def format_paragraph(*lines: str) -> str:
    """Return lines of text as one paragraph."""
    return "<p>" + "<br>".join(escape(line) for line in lines) + "</p>"


def show_progress(steps: Sequence[Step]) -> AbstractContextManager[ReportProgress]:
    """Return one bar per step, in the notebook's cell or on standard error."""
    return show_notebook_bars(steps) if is_in_notebook() else show_progress_bars(steps)


@contextmanager
def show_progress_bars(steps: Sequence[Step], console: Console | None = None) -> Iterator[ReportProgress]:
    """Show one bar per step on the console (default: standard error), or one line per step outside a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    people = console or Console(stderr=True, highlight=False, force_jupyter=False)
    step_of = {step.name: step for step in steps}
    columns = (
        TextColumn("{task.description:<18}"),
        TextColumn("[dim]{task.fields[kind]:<11}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=people, disable=not people.is_terminal) as progress:
        bars: dict[str, TaskID] = {}

        def report(name: str, done: int, total: int) -> None:
            if name not in bars:
                step = step_of[name]
                bars[name] = progress.add_task(step.title, total=total, kind=str(step.kind))
                if not people.is_terminal:
                    people.print(step.label, style="dim")
            if done == 1 and total == 1:
                total = done = int(progress.tasks[bars[name]].total or 1)
            progress.update(bars[name], completed=done, total=total)

        yield report


@contextmanager
def show_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for (done, total) on standard error, removed at its end; no bar outside a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    people = Console(stderr=True, highlight=False, force_jupyter=False)
    with Progress(console=people, transient=True, disable=not people.is_terminal) as progress:
        bar = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@contextmanager
def show_notebook_bars(steps: Sequence[Step]) -> Iterator[ReportProgress]:
    """Show one bar for the whole release in the notebook's cell, with the name of the step that runs."""
    from IPython.display import HTML, display

    names = [step.name for step in steps]
    labels = {step.name: step.label for step in steps}
    handle = display(HTML(_format_bar("", 0, len(steps))), display_id=True)
    began: list[str] = []

    def report(name: str, done: int, total: int) -> None:
        if name not in began:
            began.append(name)
            handle.update(HTML(_format_bar(labels[name], names.index(name), len(steps))))

    yield report
    handle.update(HTML(_format_bar("done", len(steps), len(steps))))


def _format_bar(label: str, done: int, total: int) -> str:
    return f'<progress value="{done}" max="{total}"></progress> {done} of {total} {escape(label)}'

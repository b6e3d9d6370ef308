"""What the commands share: the console, errors for people, and the options they have in common."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from privsyn.base.errors import MORE_MEMORY, OUT_OF_MEMORY, PrivsynError, RequestError, is_out_of_memory
from privsyn.base.interrupts import defer_interrupts
from privsyn.base.places import expand_path, is_url, refuse_undecodable
from privsyn.base.wording import SETTINGS, Vocabulary, list_fields
from privsyn.storage.disk import OF_THE_DISK

if TYPE_CHECKING:
    from privsyn.base.settings import Settings

people = Console(stderr=True, highlight=False, markup=False)
"""Progress, questions, warnings and refusals go to standard error; standard output is for results (``Tables``, JSON).

Text is never markup: a column may be called ``[/]``.
"""

PIPED_WIDTH = 160
"""Columns of a table that is not shown on a terminal."""

WARN_EPSILON = 10.0
"""Above this epsilon of a request people are warned."""

OutFolder = Annotated[str | None, typer.Option(metavar="PATH", help="Folder for released/ and private/.")]
RunsFolder = Annotated[str | None, typer.Option(metavar="PATH", help="Folder with released/ and private/.")]
PrivateTable = Annotated[str | None, typer.Option(metavar="PATH", help="Private table instead of the spec's `data`.")]
SecondName = Annotated[
    str | None,
    typer.Option(metavar="WHY", help="Reason for a second budget, if the table was released under another name."),
]
SpecEpsilon = Annotated[float | None, typer.Option(help="Epsilon instead of the spec's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AsFlow = Annotated[
    bool, typer.Option("--prefect", help="Run as a Prefect flow; starts a temporary server if none is configured.")
]
SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="Release spec (YAML).")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the full error, which may contain private values.")]


@contextmanager
def print_errors(*, debug: bool, out: str | None = None) -> Iterator[None]:
    """Turn errors into one paragraph and an exit code: 2 request, 3 budget, 4 lost noise, 1 anything else.

    SIGTERM is a Ctrl-C.
    ``out``: the option ``--out``, under which ``debug`` looks for the whole error of a failed step.
    """
    started, interrupts = time.time(), Interrupts()
    try:
        with interrupts.heard():
            yield
    except typer.Exit:
        raise
    except (KeyboardInterrupt, Exception) as error:
        if interrupts.came or isinstance(error, KeyboardInterrupt):
            people.print(
                "privsyn: stopped. Run the same command again: finished steps are kept, nothing is charged twice."
            )
            raise typer.Exit(1) from None
        if debug:
            with suppress(PrivsynError, OSError):  # the error that is being told may be that one
                path = read_settings(out).private_root / "failure.txt"
                if path.is_file() and path.stat().st_mtime >= started:
                    people.print(path.read_text(encoding="utf-8"))
            traceback.print_exc()
        known = error if isinstance(error, PrivsynError) else _make_unexpected_error(error)
        people.print(Text.assemble(("privsyn: ", "bold red"), known.paragraph(COMMAND_LINE)), soft_wrap=True)
        raise typer.Exit(known.exit_code) from None


class Interrupts:
    """Whether somebody asked to stop, by Ctrl-C or SIGTERM: compiled code may turn that into an error of its own."""

    def __init__(self) -> None:
        self.came = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """SIGTERM ends the block as Ctrl-C does, so that what it started is stopped; in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._interrupt) for number in numbers]
        try:
            with defer_interrupts(grace=0):
                yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt


def _make_unexpected_error(error: Exception) -> PrivsynError:
    if is_out_of_memory(error):
        return PrivsynError(OUT_OF_MEMORY, MORE_MEMORY)
    named = error.filename if isinstance(error, OSError) and error.errno not in OF_THE_DISK else None
    if isinstance(error, OSError) and error.strerror and isinstance(named, (str, bytes, os.PathLike)):
        problem = f"{os.fsdecode(named)[:200]} cannot be opened or written: {error.strerror}"
        return RequestError(problem, "Check the path and its permissions")
    if isinstance(error, OSError) and error.errno in OF_THE_DISK:
        problem = f"what is written does not fit or cannot be kept: {error.strerror}"
        return PrivsynError(problem, "Free some space, also where standard output goes, and run again")
    return PrivsynError(
        f"an unexpected {type(error).__name__} stopped the run",
        "Run again: finished steps are kept and nothing is charged twice; --debug shows the whole error, which may "
        "contain private values",
    )


def parse_path(path: str | None, field: str) -> Path | None:
    """Return the path of an option; an empty one would silently mean the working folder, so it is refused.

    So is one that is not UTF-8, before anything is made or reserved.
    """
    if path is None:
        return None
    if not path.strip():
        raise RequestError("is empty", "Name a path, or leave the option out", field)
    refuse_undecodable(path, field)
    return Path(path)


def parse_table(place: str | None, field: str) -> str | Path | None:
    """Return where a table is, of an option: the URL of a database's table, or a path as :func:`parse_path` has it."""
    return place if is_url(place) else parse_path(place, field)


def read_settings(out: str | None = None) -> Settings:
    """Return the settings of the environment, with the folder of the option ``--out`` where it is given."""
    from privsyn.base.settings import Settings  # here: `--help` needs no settings, and they load slowly

    folder = parse_path(out, "--out")
    return Settings() if folder is None else Settings(out=folder.absolute())


def write_new(path: Path, make_text: Callable[[], str], option: str) -> str:
    """Make the text of a file that must not be there yet, write it and return it.

    Raises RequestError that names ``option`` for a file that is there, before the text is made, and for one that cannot
    be.
    """
    if path.exists():
        raise RequestError(f"{path} exists already", "Choose another name, or move the file away", option)
    text = make_text()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror}"
        raise RequestError(problem, "Choose a folder that exists and is writable", option) from None
    return text


def make_folder(settings: Settings) -> None:
    """Make the folder of ``--out``.  Raises RequestError if it cannot be made, or written for the private folder."""
    out, private = expand_path(settings.out, "--out"), settings.private_root
    try:
        out.mkdir(parents=True, exist_ok=True)
        place = private if private.is_dir() else out
    except OSError as error:
        problem = f"cannot make the folder {out}: {error.strerror}"
        raise RequestError(problem, "Choose a folder that can be written", "--out") from None
    if settings.private is None and not os.access(place, os.W_OK):
        raise RequestError(f"the folder {place} cannot be written", "Choose a folder that can be written", "--out")


def warn_of_epsilon(epsilon: float) -> None:
    """Warn of an epsilon that protects little."""
    if epsilon > WARN_EPSILON:
        warn(
            f"epsilon {epsilon:g} is above {WARN_EPSILON:g}: at this level attacks on single people are known to work."
        )


def print_answer(text: str) -> None:
    """Print to standard output.  Where nobody reads it any more (``| head``), be silent and go on."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _print_to_nobody()


class Tables(Console):
    """Tables on standard output; where nobody reads them any more they are silent and go on, as :func:`print_answer`.

    ``width``: their columns where standard output is no terminal.
    """

    def __init__(self, width: int = PIPED_WIDTH) -> None:
        super().__init__(highlight=False, markup=False, width=None if sys.stdout.isatty() else width)
        if isinstance(sys.stdout, io.TextIOWrapper):  # an encoding without a character of the table stops no command
            sys.stdout.reconfigure(errors="replace")

    def on_broken_pipe(self) -> None:
        """Go on in silence; rich's own way is to end the program with exit code 1."""
        _print_to_nobody()


def open_results(*, as_json: bool) -> Console:
    """Return where a command's result is printed for people: standard output, but beside JSON on it standard error."""
    return people if as_json else Tables()


def is_interactive() -> bool:
    """Return whether somebody can be asked: a terminal on all sides, no pipe, file or server."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _print_to_nobody() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def warn(text: str) -> None:
    """Print a warning on standard error."""
    people.print(Text.assemble(("Warning:", "yellow"), " ", text), soft_wrap=True)


def get_command_name() -> str:
    """Return how the reader starts this program again, on the same ledger."""
    started = Path(sys.argv[0])
    name = "privsyn" if shutil.which("privsyn") == str(started.absolute()) else str(started)
    ledger = os.environ.get("PRIVSYN_LEDGER")
    return f"PRIVSYN_LEDGER={ledger} {name}" if ledger and "@" not in ledger else name


_OTHER_WORDS = {
    "settings.out": "--out or PRIVSYN_OUT",
    "release.spec": "SPEC",
    "backfill.dataset": "DATASET",
    "release.time_zone": "time_zone",
    "evaluate.release": "RELEASE",
    "evaluate.labels": "--label",
    "evaluate.delta": "delta",
    "comparison.labels": "--label",
    "improve.release": "RUN",
    "rerun.release": "RUN",
    "rerun.keep": "--output",
    "query.release": "RELEASE",
    "query.columns": "QUESTION",
    "query.where": "QUESTION",
    "query.formula": "QUESTION",
    "query.probabilities": "QUESTION",
    "query.other": "--earlier",
    "forecast.rows": "--rows-about",
    "estimate.rows": "--rows-about",
    "add_formats.release": "RELEASE",
    "add_formats.formats": "--to",
    "publish.release": "RELEASE",
    "publish.database": "DATABASE",
    "draft_spec.data": "DATA",
    "draft_spec.csv": "--delimiter, --decimal, --thousands, --encoding or --quote",
    "ledger.dataset": "DATASET",
    "backup.file": "FILE",
    "init.folder": "FOLDER",
}
"""Fields that are arguments, or options of another name."""
COMMAND_LINE = Vocabulary(
    fields={
        **{field: f"--{name.replace('_', '-')}" for field, name in list_fields()},
        **SETTINGS,
        **_OTHER_WORDS,
    },
    actions={
        "redraw": "run with --fresh",
        "draft_spec": "`privsyn spec draft`",
        "list_runs": "`privsyn ledger show`",
        "verify_ledger": "`privsyn ledger verify`",
        "show_whole_error": "--debug shows the whole error",
    },
)
"""The words of ``privsyn --help``.  What no option gives (a schedule's time zone) has its own name."""

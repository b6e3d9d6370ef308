"""``privsyn rerun``: arguments, and which files agree."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from privsyn.cli.common import Debug, parse_path, people, print_answer, print_errors, read_settings

if TYPE_CHECKING:
    from privsyn.api.rerun import Rerun


def rerun_command(
    release: Annotated[str, typer.Argument(metavar="RUN", help="A release's folder, or a run's name in released/.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FOLDER", help="Keep what was made, in a new folder.")
    ] = None,
    prior: Annotated[
        str | None, typer.Option("--prior", metavar="FILE", help="The release's public prior, if it had one.")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="PATH", help="Folder with released/.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    debug: Debug = False,
) -> None:
    """Make RUN again from its released folder alone, and compare every file with its manifest.

    Needs no ledger, no private folder and no table; draws nothing and costs nothing. Exit code 1 when a file differs.
    """
    with print_errors(debug=debug, out=out):
        from privsyn.api.rerun import rerun

        keep, settings = parse_path(output, "--output"), read_settings(out)
        result = rerun(release, settings, keep, prior=parse_path(prior, "--prior"))
        if as_json:
            print_answer(json.dumps(_as_json(result)))
        _print(result)
        if not result.agrees:
            raise typer.Exit(1)


def _as_json(result: Rerun) -> dict[str, Any]:
    return {
        "run": result.run,
        "agrees": result.agrees,
        "files": {f.name: {"on_disk": f.on_disk, "made_anew": f.reproduced} for f in result.files},
        "unknown": list(result.unknown),
        "problems": list(result.problems),
        "versions": {name: {"then": then, "here": here} for name, (then, here) in result.versions.items()},
        "kept": None if result.folder is None else str(result.folder),
    }


def _print(result: Rerun) -> None:
    width = max(len(f.name) for f in result.files)
    for file in result.files:
        people.print(Text.assemble(f"{file.name:<{width}}  ", (file.words(), "" if file.agrees else "red")))
    for name in result.unknown:
        people.print(Text.assemble(f"{name:<{width}}  ", ("is not in the manifest", "red")))
    for problem in result.problems:
        people.print(Text.assemble(("PROBLEM: ", "red"), problem), soft_wrap=True)
    if result.agrees:
        people.print(f"Run {result.run} was reproduced: every file is byte for byte the one of its manifest.")
    else:
        people.print(f"Run {result.run} was NOT reproduced.", style="bold red")
    if result.versions:
        other = ", ".join(f"{name} {then} (here {here})" for name, (then, here) in result.versions.items())
        why = "What differs may come from that: try with those versions. " if not result.agrees else ""
        people.print(f"{why}It was made by other versions: {other}.", soft_wrap=True, markup=False)
    if result.folder is not None:
        people.print(f"What was made: {result.folder}", soft_wrap=True, markup=False)

"""``privsyn rerun``: arguments, and which files agree."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from privsyn.cli.common import AsJson, Debug, open_results, parse_path, print_answer, print_errors, read_settings

if TYPE_CHECKING:
    from rich.console import Console

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
    as_json: AsJson = False,
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
        _print(result, open_results(as_json=as_json))
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


def _print(result: Rerun, results: Console) -> None:
    lines: list[str | Text] = []
    width = max(len(f.name) for f in result.files)
    for file in result.files:
        lines.append(Text.assemble(f"{file.name:<{width}}  ", (file.words(), "" if file.agrees else "red")))
    lines += [Text.assemble(f"{name:<{width}}  ", ("is not in the manifest", "red")) for name in result.unknown]
    lines += [Text.assemble(("PROBLEM: ", "red"), problem) for problem in result.problems]
    if result.agrees:
        lines.append(f"Run {result.run} was reproduced: every file is byte for byte the one of its manifest.")
    else:
        lines.append(Text(f"Run {result.run} was NOT reproduced.", style="bold red"))
    if result.versions:
        other = ", ".join(f"{name} {then} (here {here})" for name, (then, here) in result.versions.items())
        why = "What differs may come from that: try with those versions. " if not result.agrees else ""
        lines.append(f"{why}It was made by other versions: {other}.")
    if result.folder is not None:
        lines.append(f"What was made: {result.folder}")
    for line in lines:
        results.print(line, soft_wrap=True)

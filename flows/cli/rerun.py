"""``privsyn rerun``: arguments, and which files agree.

Belongs here: what people type and see.  Does not belong here: making a release again (flows/operations/rerun.py).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from flows.cli.common import Debug, errors_for_people, named_path, people

if TYPE_CHECKING:
    from flows.operations.rerun import Rerun


def rerun_command(
    release: Annotated[str, typer.Argument(metavar="RUN", help="A release's folder, or a run's name in released/.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FOLDER", help="Keep what was made, in a new folder.")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="PATH", help="Folder with released/.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    debug: Debug = False,
) -> None:
    """Make RUN again from its released folder alone, and compare every file with its manifest.

    Needs no ledger, no private folder and no table; draws nothing and costs nothing. Exit code 1 when a file differs.
    """
    with errors_for_people(debug=debug):
        keep, folder = named_path(output, "--output"), named_path(out, "--out")
        if folder is not None:
            os.environ["PRIVSYN_OUT"] = str(folder.absolute())
        from flows.operations.rerun import rerun
        from flows.settings import Settings

        found = rerun(release, Settings(), keep)
        if as_json:
            print(json.dumps(_as_json(found)))
        _print(found)
        if not found.agrees:
            raise typer.Exit(1)


def _as_json(found: Rerun) -> dict[str, Any]:
    return {
        "run": found.run,
        "agrees": found.agrees,
        "files": {f.name: {"on_disk": f.on_disk, "made_anew": f.made} for f in found.files},
        "unknown": list(found.unknown),
        "problems": list(found.problems),
        "versions": {name: {"then": then, "here": here} for name, (then, here) in found.versions.items()},
        "kept": None if found.kept is None else str(found.kept),
    }


def _print(found: Rerun) -> None:
    width = max(len(f.name) for f in found.files)
    for file in found.files:
        people.print(Text.assemble(f"{file.name:<{width}}  ", (file.words(), "" if file.agrees else "red")))
    for name in found.unknown:
        people.print(Text.assemble(f"{name:<{width}}  ", ("is not in the manifest", "red")))
    for problem in found.problems:
        people.print(Text.assemble(("PROBLEM: ", "red"), problem), soft_wrap=True)
    if found.agrees:
        people.print(f"Run {found.run} was reproduced: every file is byte for byte the one of its manifest.")
    else:
        people.print(f"Run {found.run} was NOT reproduced.", style="bold red")
    if found.versions:
        other = ", ".join(f"{name} {then} (here {here})" for name, (then, here) in found.versions.items())
        why = "What differs may come from that: try with those versions. " if not found.agrees else ""
        people.print(f"{why}It was made by other versions: {other}.", soft_wrap=True, markup=False)
    if found.kept is not None:
        people.print(f"What was made: {found.kept}", soft_wrap=True, markup=False)

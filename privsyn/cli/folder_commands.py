"""``privsyn rerun``, ``formats``, ``publish`` and ``prune``: what is done with a release that is there."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.table import Table
from rich.text import Text

from privsyn.base.errors import RequestError
from privsyn.cli.common import (
    AsJson,
    Debug,
    RunsFolder,
    Tables,
    open_results,
    parse_path,
    print_answer,
    print_errors,
    read_settings,
)

if TYPE_CHECKING:
    from rich.console import Console

    from privsyn.api.rerun import Rerun


def rerun_command(
    release: Annotated[str, typer.Argument(metavar="RUN", help="Released folder, or run name.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FOLDER", help="Keep the new files in this new folder.")
    ] = None,
    prior: Annotated[
        str | None, typer.Option("--prior", metavar="PLACE", help="File or released folder that was the prior.")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="PATH", help="Folder with released/.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Reproduce a release from its folder and compare.

    It makes every file again from the released folder alone and compares it with the manifest.
    It needs no ledger, private folder or table, draws no noise and costs nothing.
    Exit code 1 if a file differs, unless another version of this program only words it differently.
    """
    with print_errors(debug=debug, out=out):
        from privsyn.api.rerun import rerun

        keep, settings = parse_path(output, "--output"), read_settings(out)
        result = rerun(release, settings, keep, prior=parse_path(prior, "--prior"))
        if as_json:
            print_answer(json.dumps(_rerun_as_json(result)))
        _print_agreement(result, open_results(as_json=as_json))
        if not result.data_agree:
            raise typer.Exit(1)


def _rerun_as_json(result: Rerun) -> dict[str, Any]:
    return {
        "run": result.run,
        "agrees": result.agrees,
        "data_agree": result.data_agree,
        "written_differently": list(result.reworded),
        "files": {f.name: {"on_disk": f.on_disk, "made_anew": f.reproduced} for f in result.files},
        "unknown": list(result.unknown),
        "problems": list(result.problems),
        "versions": {name: {"then": then, "here": here} for name, (then, here) in result.versions.items()},
        "kept": None if result.folder is None else str(result.folder),
    }


def _print_agreement(result: Rerun, results: Console) -> None:
    lines: list[str | Text] = []
    width = max(len(f.name) for f in result.files)
    for file in result.files:
        lines.append(
            Text.assemble(f"{file.name:<{width}}  ", (file.words(), "" if file.agrees or file.reworded else "red"))
        )
    lines += [Text.assemble(f"{name:<{width}}  ", ("is not in the manifest", "red")) for name in result.unknown]
    lines += [Text.assemble(("PROBLEM: ", "red"), problem) for problem in result.problems]
    if result.agrees:
        lines.append(f"Run {result.run} was reproduced: every file is byte for byte the one of its manifest.")
    elif result.data_agree:
        which = " and ".join(filter(None, [", ".join(result.reworded[:-1]), result.reworded[-1]]))
        are = "is" if len(result.reworded) == 1 else "are"
        lines.append(
            f"The data of run {result.run} agree: every table was reproduced byte for byte. Only {which} {are} written "
            "differently by this version."
        )
    else:
        lines.append(Text(f"Run {result.run} was NOT reproduced.", style="bold red"))
    if result.versions:
        other = ", ".join(f"{name} {then} (here {here})" for name, (then, here) in result.versions.items())
        why = "What differs may come from that: try with those versions. " if not result.data_agree else ""
        lines.append(f"{why}It was made by other versions: {other}.")
    if result.folder is not None:
        lines.append(f"What was made: {result.folder}")
    for line in lines:
        results.print(line, soft_wrap=True)


def formats_command(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Run name, or folder under released/.")],
    to: Annotated[list[str], typer.Option("--to", metavar="FORMAT", help="Format to add: csv. Repeatable.")],
    out: RunsFolder = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Add a file format to a release, at no cost."""
    with print_errors(debug=debug, out=out):
        settings = read_settings(out)
        from privsyn.data_contracts.publication import Format
        from privsyn.publish.folder import add_formats

        known = get_args(Format)
        for name in to:
            if name not in known:
                raise RequestError(
                    f"{name!r} is not a format of a release",
                    f"The formats are {', '.join(known)}",
                    "add_formats.formats",
                )
        added = add_formats(release, to, settings)  # type: ignore[arg-type]
        if as_json:
            print_answer(json.dumps({"released": str(added.folder), "added": list(added.files)}))
        new = ", ".join(added.files) or "nothing: it was there"
        results = open_results(as_json=as_json)
        results.print(f"Added {new}. Cost: nothing. Files: {added.folder}  (publish)", soft_wrap=True)


def publish_command(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Run name, or released folder.")],
    database: Annotated[
        str,
        typer.Argument(
            metavar="DATABASE",
            help="postgresql://HOST/NAME, duckdb:///FILE, sqlite:///FILE, or s3://BUCKET/FOLDER for a copy.",
        ),
    ],
    prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Start of every table's name. Default: the data set's name and _."),
    ] = None,
    schema: Annotated[str | None, typer.Option(metavar="NAME", help="Schema, created if missing.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another release with these names.")] = False,
    out: RunsFolder = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a release into a database.

    It writes rows, noisy counts and note as tables with comments, all of them or none.
    Only the released folder is read. The password is in PGPASSWORD or the file that PGPASSFILE names.
    """
    with print_errors(debug=debug, out=out):
        from privsyn.base.places import is_object_url
        from privsyn.publish.databases import publish_tables
        from privsyn.storage.released_files import find_release

        folder = find_release(release, read_settings(out), "publish.release")
        if is_object_url(database):
            from privsyn.storage.stores import find_store

            copied = find_store(database, "publish.database").copy_released(folder, database, "publish.database")
            if as_json:
                print_answer(json.dumps(asdict(copied)))
            outcome = "Published" if copied.written else "Nothing to do: it already is"
            open_results(as_json=as_json).print(f"{outcome} {copied.place}. Cost: nothing.", soft_wrap=True)
            return
        publication = publish_tables(folder, database, prefix=prefix, schema=schema, replace=replace)
        if as_json:
            print_answer(json.dumps(asdict(publication)))
        outcome = "Published" if publication.written else "Nothing to do: there already are"
        open_results(as_json=as_json).print(
            f"{outcome} {', '.join(publication.tables)}. Cost: nothing. Database: {publication.database}",
            soft_wrap=True,
        )


def prune_command(
    delete: Annotated[bool, typer.Option("--delete", help="Remove the files. Without it, only list them.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Include private rows of runs whose noise is drawn.")] = False,
    reports: Annotated[bool, typer.Option("--reports", help="Include all private reports and comparisons.")] = False,
    out: RunsFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Show or remove private files that no run needs.

    It leaves alone everything that was paid for, keys, notes and released folders.
    It skips data sets that a running release holds.
    """
    with print_errors(debug=debug, out=out):
        from privsyn.api.prune import prune

        pruned = prune(read_settings(out), rows=rows, reports=reports, delete=delete)
        if as_json:
            files = [{"path": str(u.path), "bytes": u.bytes, "reason": u.reason} for u in pruned.found]
            print_answer(json.dumps({"removed": delete, "found": files, "left_out": list(pruned.left_out)}))
            return
        results = Tables()
        by_reason: dict[str, list[int]] = defaultdict(list)
        for each in pruned.found:
            by_reason[each.reason].append(each.bytes)
        table = Table("what", "how many", "MB", title="Removed" if delete else "No run needs")
        for reason, sizes in by_reason.items():
            table.add_row(reason, f"{len(sizes):,}", f"{sum(sizes) / 1e6:,.1f}")
        if by_reason:
            results.print(table)
        for dataset in pruned.left_out:
            results.print(f"Left out: {dataset!r}, which a running release holds.", soft_wrap=True)
        if not by_reason:
            results.print("Every file is one that a run needs.")
        elif not delete:
            results.print("Nothing was removed: --delete does it.")

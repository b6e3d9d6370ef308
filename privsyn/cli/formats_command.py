"""``privsyn formats``: arguments and the closing lines."""

from __future__ import annotations

import json
from typing import Annotated, get_args

import typer

from privsyn.base.errors import RequestError
from privsyn.cli.common import AsJson, Debug, RunsFolder, open_results, print_answer, print_errors, read_settings


def formats_command(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Run name, or its folder under released/.")],
    to: Annotated[list[str], typer.Option("--to", metavar="FORMAT", help="Format to add, csv; can be repeated.")],
    out: RunsFolder = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Add a file format to a RELEASE that is there: no noise, no cost, no look at anything private."""
    with print_errors(debug=debug, out=out):
        settings = read_settings(out)
        from privsyn.data_contracts.publication import Format
        from privsyn.publish.formats.add_formats import add_formats

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
        results.print(f"Added {new}. Cost: nothing. Files: {added.folder}  (give away)", soft_wrap=True)

"""``privsyn publish``: arguments and the closing lines."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from privsyn.cli.common import AsJson, Debug, RunsFolder, open_results, print_answer, print_errors, read_settings


def publish_command(
    release: Annotated[str, typer.Argument(metavar="RELEASE", help="Run name, or a released folder.")],
    database: Annotated[
        str, typer.Argument(metavar="DATABASE", help="postgresql://HOST/NAME, duckdb:///FILE or sqlite:///FILE.")
    ],
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Begins every table's name; the data set's and _ by default.")
    ] = None,
    schema: Annotated[str | None, typer.Option(metavar="NAME", help="Schema, made where there is none.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another release of these names.")] = False,
    out: RunsFolder = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a RELEASE into a DATABASE as tables with comments: rows, noisy counts and note, all of them or none.

    Only the released folder is read.  The password is in PGPASSWORD or the file that PGPASSFILE names.
    """
    with print_errors(debug=debug, out=out):
        from privsyn.publish.database_tables import publish_tables
        from privsyn.storage.released_files import release_folder

        folder = release_folder(release, read_settings(out), "publish.release")
        made = publish_tables(folder, database, prefix=prefix, schema=schema, replace=replace)
        if as_json:
            print_answer(json.dumps(asdict(made)))
        said = "Published" if made.written else "Nothing to do: there already are"
        open_results(as_json=as_json).print(
            f"{said} {', '.join(made.tables)}. Cost: nothing. Database: {made.database}", soft_wrap=True
        )

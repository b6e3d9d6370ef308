"""``privsyn prune``: what no run needs, shown first, removed on request."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Annotated

import typer
from rich.table import Table

from privsyn.cli.common import Debug, RunsFolder, Tables, print_answer, print_errors, read_settings


def prune_command(
    delete: Annotated[bool, typer.Option("--delete", help="Remove it; without this it is only shown.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Also private rows of runs whose noise is drawn.")] = False,
    reports: Annotated[bool, typer.Option("--reports", help="Also all private reports and comparisons.")] = False,
    out: RunsFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    debug: Debug = False,
) -> None:
    """Show what of the private folder no run needs any more, or remove it.

    Nothing that was paid for, no key, note or released folder is touched.  A data set that a running release holds is
    left out.
    """
    with print_errors(debug=debug, out=out):
        from privsyn.api.prune import prune

        pruned = prune(read_settings(out), rows=rows, reports=reports, delete=delete)
        if as_json:
            found = [{"path": str(u.path), "bytes": u.bytes, "reason": u.reason} for u in pruned.found]
            print_answer(json.dumps({"removed": delete, "found": found, "left_out": list(pruned.left_out)}))
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

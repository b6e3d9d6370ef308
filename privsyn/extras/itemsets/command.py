"""``privsyn itemsets``: arguments, progress and the closing summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from rich.table import Table

from privsyn.cli.common import (
    AsJson,
    Debug,
    OutFolder,
    PrivateTable,
    SecondName,
    SpecEpsilon,
    make_folder,
    open_results,
    parse_table,
    people,
    print_answer,
    print_errors,
    read_settings,
    warn_of_epsilon,
)

if TYPE_CHECKING:
    from rich.console import Console

    from privsyn.extras.itemsets.publish_itemsets import ItemsetSummary

_SHOWN = 10


def itemsets_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="Itemset spec (YAML).")],
    data: PrivateTable = None,
    out: OutFolder = None,
    epsilon: SpecEpsilon = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw new noise even if the release exists. Costs budget.")
    ] = False,
    new_dataset: SecondName = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Release frequent itemsets with error bars.

    SPEC names the private transactions. The same request again finds its release and costs nothing.
    """
    with print_errors(debug=debug, out=out):
        from privsyn.engine.progress import show_progress_bars
        from privsyn.extras.itemsets.itemset_spec_file import load_itemset_spec
        from privsyn.extras.itemsets.publish_itemsets import publish_itemsets
        from privsyn.extras.itemsets.steps import build_itemset_steps

        table, settings = parse_table(data, "--data"), read_settings(out)
        itemset_spec = load_itemset_spec(spec, epsilon, table)
        if out is not None:
            make_folder(settings)
        warn_of_epsilon(itemset_spec.privacy.epsilon)
        with show_progress_bars(build_itemset_steps(itemset_spec), people) as report:
            summary = publish_itemsets(itemset_spec, settings, fresh=fresh, new_dataset=new_dataset, report=report)
        if as_json:
            print_answer(json.dumps(summary.model_dump(mode="json")))
        _print_summary(summary, open_results(as_json=as_json))


def _print_summary(summary: ItemsetSummary, results: Console) -> None:
    import pyarrow.parquet as pq

    grid = Table(box=None, padding=(0, 2), header_style="bold")
    grid.add_column("itemset", overflow="fold")
    grid.add_column("share", justify="right")
    grid.add_column("standard error", justify="right")
    for row in pq.read_table(Path(summary.released) / "itemsets.parquet").slice(0, _SHOWN).to_pylist():
        grid.add_row(", ".join(row["items"]), f"{row['support']:.4f}", f"{row['std_error']:.2g}")
    title = f"{summary.run}: {summary.itemsets:,} itemsets"
    results.print(Panel(grid, title=title, border_style="green", expand=False))
    cost = f"epsilon {summary.epsilon:g}, delta {summary.delta:g} (rho {summary.rho:.4g} at most)"
    charged = f"Cost: {cost}, charged to the data set" if summary.drawn else f"Cost: nothing, released before ({cost})"
    results.print(f"{charged}. Files: {summary.released}  (publish)", soft_wrap=True)

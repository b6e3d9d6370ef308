"""The words of an itemset release: README.md beside its table."""

from __future__ import annotations

import pyarrow as pa

from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.itemset_spec import ItemsetSpec
from privsyn.publish.markdown import format_code
from privsyn.publish.release_note import Looks, describe_cost, write_promise

_SHOWN = 10


def write_itemset_note(
    asked: ItemsetSpec, certificate: Certificate, table: pa.Table, looks: Looks, *, private: bool
) -> str:
    """Markdown: what was released, what is promised, the first itemsets, how to read them, what they cost."""
    warning = "" if private else "\n\n**NOT PRIVATE: made with test noise. Do not publish this folder.**"
    wanted = (
        f"about the {asked.top:,} most frequent ones"
        if asked.top is not None
        else f"those in at least {asked.at_least:.3g} of the transactions"
    )
    heading = (
        f"# Frequent itemsets of `{certificate.dataset}`, release `{certificate.run}`{warning}\n\n"
        f"{table.num_rows:,} sets of 1 to {asked.largest} of {len(asked.items):,} public items, and in what share of "
        f"the transactions each is held: {wanted}, as far as the noise allows. A transaction counts with at most "
        f"{asked.max_items:,} of its items; one person has at most {asked.transactions_per_person:,} of them."
    )
    parts = [
        heading,
        write_promise(certificate),
        _format_first(table),
        _explain_itemsets(),
        describe_cost(certificate, looks),
        _list_files(),
    ]
    return "\n\n".join(parts) + "\n"


def _format_first(table: pa.Table) -> str:
    lines = ["## The most frequent", "", "| items | share | standard error | 95 % interval |", "|---|---|---|---|"]
    for row in table.slice(0, _SHOWN).to_pylist():
        items = ", ".join(format_code(item) for item in row["items"])
        span = f"{row['low']:.3f} to {row['high']:.3f}"
        lines.append(f"| {items} | {row['support']:.4f} | {row['std_error']:.2g} | {span} |")
    return "\n".join(lines)


def _explain_itemsets() -> str:
    return (
        "## How to read them\n\n"
        "- `support` is `count` divided by the noisy number of transactions. `std_error` and the interval are those of "
        "the noise alone, for the transactions as they were counted: not of sampling, and not of items that were cut "
        "from long transactions, which make counts too small.\n"
        "- The sets were chosen by these same estimates, so the last ones of the list are there partly by luck: their "
        "estimates tend to be too high. An interval holds in 95 of 100 cases for a set that was chosen beforehand.\n"
        "- A set that is missing is not thereby infrequent: its pairs may have been lost in noise. A count may be "
        "larger than that of a subset, within noise."
    )


def _list_files() -> str:
    return (
        "## Files\n\n"
        "- `itemsets.parquet`, `itemsets.csv`: the itemsets, a row each, the most frequent first.\n"
        "- `marginals/`: the noisy counts behind them; `*_receipts.parquet` says what each asked and its noise.\n"
        "- `request.json`: the public request. `certificate.json`: budget, noise, neighbours, composition. "
        "`manifest.json`: steps, versions, and the SHA-256 of every file here."
    )

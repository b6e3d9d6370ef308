"""Releases of the model: the rows counted anew, noise like the receipts' added, and everything after it done again.

What a statistic of the rows varies by from one such release to the next, around its value on the rows, is the error
that noise and post-processing bring into it (the parametric bootstrap).  The choices of the release, its codes and its
measured marginals, stay as they are.  No private table is near: the rows take its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.answers.released_counts import Counts, ReleasedCounts, merge_recode
from privsyn.answers.synthetic_rows import read_row_codes
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.mechanism_options import AnyMechanism, PrivSyn
from privsyn.engine.memory import MemoryRun, Tables
from privsyn.pipelines.named_sets import MERGES_FILE
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.recode import recode_to_table, with_one_ways
from privsyn.tasks.estimation.trends import rank_codes
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import SeededNoise
from privsyn.tasks.steps.trend_scores import count_exactly, get_top

SIMULATED_RELEASES = 25
"""Releases of the model that an interval rests on."""

MOST_BYTES = 1 << 30
"""Replicates that are larger together are made anew for every question."""

Progress = Callable[[int, int], None]
"""Called with (replicates done, of how many)."""


def iterate_replicates(released: ReleasedCounts, progress: Progress = lambda done, total: None) -> Iterator[pa.Table]:
    """Yield the rows of SIMULATED_RELEASES releases of the model, tables like the synthetic one.

    Made once, if they are small.
    """
    kept = released.cache.get("replicates")
    if kept is not None:
        yield from kept
        return
    made, size = [], 0
    for number in range(SIMULATED_RELEASES):
        progress(number, SIMULATED_RELEASES)
        table = make_replicate(released, number)
        size += table.nbytes
        if size <= MOST_BYTES:
            made.append(table)
        yield table
    progress(SIMULATED_RELEASES, SIMULATED_RELEASES)
    if size <= MOST_BYTES:
        released.cache["replicates"] = made


def make_replicate(released: ReleasedCounts, seed: int) -> pa.Table:
    """Return one release of the model; a function of the released folder and ``seed``."""
    noise = SeededNoise(seed)
    measured = {n: [_measure_again(released, c, noise) for c in every] for n, every in released.measured.items()}
    return remake_rows(released, measured, sums=_ask_sums_again(released, noise))


def make_unshrunk_rows(released: ReleasedCounts) -> pa.Table | None:
    """Return rows the release's own counts give where none is shrunk; None where its mechanism cannot leave that out.

    A count that was shrunk is off by a bias that releases of the model do not show, since the model has it already.
    """
    options = released.request.spec.mechanism
    if not isinstance(options, PrivSyn) or not options.consistency.shrink:
        return None
    if "unshrunk" not in released.cache:
        consistency = options.consistency.model_copy(update={"shrink": False})
        released.cache["unshrunk"] = remake_rows(
            released, released.measured, options.model_copy(update={"consistency": consistency})
        )
    rows: pa.Table = released.cache["unshrunk"]
    return rows


def remake_rows(
    released: ReleasedCounts,
    measured: Mapping[str, Sequence[Counts]],
    mechanism: AnyMechanism | None = None,
    sums: Mapping[str, Sequence[NDArray[np.int64]]] | None = None,
) -> pa.Table:
    """Return the rows that the release's own steps make of other counts in the place of those that it ``measured``.

    Of its own counts they make its own rows.  ``mechanism``: other options of its mechanism, for these steps;
    ``sums``: look at trends, or step that asked them again -> other noisy sums in the place of its own.
    """
    given: dict[str, Tables] = {
        name: {
            "noisy": released.read(f"{file}.parquet") if sums is None else noisy.tabulate_answers(sums[name]),
            "receipts": released.read(f"{file}_receipts.parquet"),
        }
        for name, file in released.trend_files.items()
    }
    for name, counts in measured.items():
        own = [c.counts.astype(np.int64) for c in released.sums_beside[name]]
        beside = own if sums is None else sums[name]
        given[name] = {
            "noisy": noisy.tabulate_answers([*(c.counts.astype(np.int64) for c in counts), *beside]),
            "receipts": released.read(f"{released.noisy_files[name]}_receipts.parquet"),
        }
    if released.sets:
        given["plan_sets"] = {"merges": released.read(MERGES_FILE)}
    one_ways = next(iter(measured.values()))
    recode = with_one_ways(
        released.recode,
        {c.attributes[0]: c.counts for c in one_ways},
        {c.attributes[0]: c.sigma for c in one_ways},
        released.encoding.binning,
    )
    given["compress_domain"] = {"recode": recode_to_table(recode, released.encoding.labels())}
    start = next(i for i, step in enumerate(released.steps) if step.name == "make_consistent")
    known = (replace(step, inputs=()) for step in released.steps[:start] if step.name in given)
    steps = [*known, *released.steps[start:]]
    request = released.request
    if mechanism is not None:
        request = replace(request, spec=request.spec.model_copy(update={"mechanism": mechanism}))
    run = MemoryRun(request, steps, lambda step, queries: [], given=given)
    rows: pa.Table = run.run()["decode"]["synthetic"]
    return rows


def list_unmeasured_pairs(released: ReleasedCounts, columns: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the pairs of these columns that no measurement holds."""
    inside = {pair for counts in released.joint for pair in combinations(counts.attributes, 2)}
    order = [a for a in released.attributes if a in columns]
    return [pair for pair in combinations(order, 2) if pair not in inside]


def _ask_sums_again(released: ReleasedCounts, noise: SeededNoise) -> dict[str, list[NDArray[np.int64]]]:
    """Return the sums of every look at trends, and of every step that counts, on the model's rows with new noise.

    The noise has the same scale; most steps that count ask no sums.
    """
    beside = {name: len(counts) for name, counts in released.measured.items()}
    found: dict[str, list[NDArray[np.int64]]] = {}
    for name, first in {**dict.fromkeys(released.trend_files, 0), **beside}.items():
        queries = noisy.read_receipts(released.read(f"{released.noisy_files[name]}_receipts.parquet"))[first:]
        if not queries:
            found[name] = []
            continue
        ranks = rank_codes(released.recode, released.encoding.binning, get_top(queries))
        sizes = {a: r.score.size for a, r in ranks.items()}
        codes = {
            a: released.recode[a].coarse[read_row_codes(released, a)].astype(choose_code_dtype(size))
            for a, size in sizes.items()
        }
        rows = CodeTable(Domain.of({a: size - 1 for a, size in sizes.items()}), tuple(codes.values()), padded=True)
        exact = count_exactly(rows, queries, 1, {a: r.score for a, r in ranks.items()})
        found[name] = [y + noise.draw(q.sigma, 1) for y, q in zip(exact, queries, strict=True)]
    return found


def _measure_again(released: ReleasedCounts, counts: Counts, noise: SeededNoise) -> Counts:
    """Return the same counts of the model's rows, with new noise of the same scale."""
    codes = [read_row_codes(released, column) for column in counts.attributes]
    if len(codes) == 1:
        exact = np.bincount(codes[0], minlength=counts.counts.size)
    else:
        recode = merge_recode(released.recode, counts)
        sizes = [recode[a].size for a in counts.attributes]
        coarse = [recode[a].coarse[c] for a, c in zip(counts.attributes, codes, strict=True)]
        inside = np.logical_and.reduce([c < size for c, size in zip(coarse, sizes, strict=True)])
        exact = np.bincount(np.ravel_multi_index([c[inside] for c in coarse], sizes), minlength=counts.counts.size)
    return counts._replace(counts=(exact + noise.draw(counts.sigma, exact.size)).astype(np.float64))

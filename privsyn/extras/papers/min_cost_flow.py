"""MCF, PrivSyn's first way to make rows (appendix A.1 of the DPSyn report; PrivSyn, section 5.1): minimum-cost flow.

For each marginal in turn, the rows change as little as possible until they have exactly the marginal's counts.  Rows
move from cells with too many rows to cells with too few.  One changed value of one row costs 1.  The rest of a row
stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Synthesis
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Output, Progress, RowStream
from privsyn.evaluation.comparison.method import MethodInput, MethodResult, Steps
from privsyn.extras.papers.noise_variants import vary_paper
from privsyn.pipelines.registry import build_steps
from privsyn.pipelines.synthesis_steps import MARGINALS
from privsyn.tasks.estimation import marginals
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.recode import estimate_total
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.kernels.streams import draw_systematically
from privsyn.tasks.steps import synthesize

Ints = NDArray[np.int64]

PASSES = 20
"""Passes over all marginals at most."""

ENOUGH = 0.001
"""No further pass once one changes at most this share of the rows per marginal."""


def mcf(trial: MethodInput) -> MethodResult:
    """Return the paper's settings, but rows by minimum-cost flow in place of GUM."""
    return vary_paper(trial, replace_synthesis)


def replace_synthesis(request: Request) -> Steps:
    """Return the request's steps, its rows made by minimum-cost flow."""
    return tuple(replace(s, run=_synthesize) if s.name == "synthesize" else s for s in build_steps(request))


def follow(wanted: Sequence[Marginal], domain: Domain, rows: int, seed: int) -> CodeTable:
    """Return ``rows`` rows by minimum-cost flow; ``wanted``: the one-way of every attribute, then larger marginals.

    Starts from independent one-ways.  The rows that change are drawn at random, which is why no shuffle is needed
    between passes.
    """
    one_ways = [m for m in wanted if len(m.attributes) == 1]
    start = synthesize.synthesize(one_ways, domain, Synthesis(method="gum", seed=seed), rows, threads=1)
    columns = {a: start.column(a).copy() for a in domain.attributes}
    generator = np.random.default_rng([seed, 0x3CF])
    larger = [m for m in wanted if len(m.attributes) > 1]
    targets = [draw_systematically(m.counts.ravel(), rows, 0.5).reshape(m.counts.shape) for m in larger]
    for _ in range(PASSES if rows else 0):
        changed = 0
        for marginal, target in zip(larger, targets, strict=True):
            codes = [columns[a] for a in marginal.attributes]
            changed += change_rows(codes, target, generator)
        if changed <= ENOUGH * rows * len(larger):
            break
    return CodeTable(domain, tuple(columns.values()))


def change_rows(columns: Sequence[np.ndarray], target: Ints, generator: np.random.Generator) -> int:
    """Give rows exactly the counts ``target`` by the fewest changed values, in place; the number of changed rows.

    ``target`` sums to the number of rows; which rows of a cell change is random.
    """
    cells = np.ravel_multi_index([c.astype(np.int64) for c in columns], target.shape)
    current = np.bincount(cells, minlength=target.size)
    senders, receivers, amounts = find_fewest_changes(current.reshape(target.shape), target)
    shuffled = generator.permutation(cells.size)
    by_cell = shuffled[np.argsort(cells[shuffled], kind="stable")]
    order = np.argsort(senders, kind="stable")
    senders, receivers, amounts = senders[order], receivers[order], amounts[order]
    before = np.cumsum(amounts) - amounts
    first_of_sender = before[np.searchsorted(senders, senders)]
    starts = (np.cumsum(current) - current)[senders] + before - first_of_sender
    moved = by_cell[np.repeat(starts - before, amounts) + np.arange(amounts.sum())]
    for column, codes in zip(columns, np.unravel_index(np.repeat(receivers, amounts), target.shape), strict=True):
        column[moved] = codes
    return int(moved.size)


def find_fewest_changes(current: Ints, target: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (from cell, to cell, rows) of a cheapest plan, by OR-Tools; cells are numbered in row-major order.

    ``current``, ``target``: counts of one shape and sum.  A move of a row between two cells costs the number of
    attributes in which the cells differ.  The unit is 1 / (number of attributes), so no row is dropped and none added.
    """
    from privsyn.tasks.metrics.earth_mover import (  # here: OR-Tools loads slowly
        build_default_hierarchy,
        choose_scale,
        find_cheapest_moves,
    )

    sizes = target.shape
    graphs = [build_default_hierarchy([str(i) for i in range(n)], ordered=False).at(1).graph() for n in sizes]
    weights = [1.0 / len(sizes)] * len(sizes)
    scale = choose_scale(graphs, weights, 0.0, target.size)
    return find_cheapest_moves(current[np.newaxis], target[np.newaxis], graphs, weights, scale)


def _synthesize(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain, settings = inputs.domain(), request.synthesis
    core, core_domain = synthesize.select_core_marginals(marginals.from_table(inputs.table(MARGINALS), domain), domain)
    total = estimate_total(inputs.read_pooled_recode())
    rows = follow(core, core_domain, synthesize.compute_output_rows(total, settings), settings.seed)
    return {"core_codes": RowStream.of_codes(iter(rows.to_arrow().to_batches()), core_domain)}

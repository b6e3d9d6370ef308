"""The audit as a table: many runs of the release and of the planted faults, against the claim."""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from audit.bounds import CONFIDENCE, Bound, Evidence, bound_epsilon, bound_mu, merge_evidence
from audit.lockstep import Release, gather_evidence
from audit.mutants import MUTANTS
from audit.worst_case import DELTA, EPSILONS, find_worst_pair, make_audited_spec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho

RELEASES: dict[str, type[Release]] = {"the release": Release, **MUTANTS}
CHUNK = 250
HEADER = ("epsilon claimed", "what is run", "runs", "epsilon at least", "mu claimed", "mu at least", "verdict")


@dataclass(frozen=True)
class Line:
    """One line of the table; the bounds are those of ``runs`` runs of each of the two tables."""

    epsilon: float
    name: str
    runs: int
    epsilon_bound: Bound
    mu: float
    mu_bound: Bound

    @property
    def verdict(self) -> str:
        """The bounds against the claim; "fault found" is what a planted fault must give, and the release must not."""
        if self.epsilon_bound.value > self.epsilon:
            return "fault found"
        return "fault found (mu only)" if self.mu_bound.value > self.mu else "within the claim"

    def cells(self) -> tuple[str, ...]:
        """Return the line as text, in the order of HEADER."""
        bounds = (f"{b.value:.2f} ({b.statistic})" for b in (self.epsilon_bound, self.mu_bound))
        epsilon, mu = bounds
        return (f"{self.epsilon:g}", self.name, f"2 x {self.runs:,}", epsilon, f"{self.mu:.2f}", mu, self.verdict)


def run_chunk(name: str, spec: ReleaseSpec, pair: tuple[pa.Table, pa.Table], runs: int) -> tuple[Evidence, Evidence]:
    """Return the evidence of one chunk of runs, with the release's own noise: in a process of its own."""
    return gather_evidence(RELEASES[name](spec, pair), runs)


def audit_release(
    pool: ProcessPoolExecutor, epsilon: float, name: str, runs: int, pair: tuple[pa.Table, pa.Table]
) -> Line:
    """Return the line of ``runs`` runs of each table, spread over the pool."""
    spec = make_audited_spec(epsilon)
    sizes = [CHUNK] * (runs // CHUNK) + ([runs % CHUNK] if runs % CHUNK else [])
    jobs = [pool.submit(run_chunk, name, spec, pair, size) for size in sizes]
    without, with_canary = (merge_evidence(side) for side in zip(*(job.result() for job in jobs), strict=True))
    mu = compute_claimed_mu(spec)
    return Line(epsilon, name, runs, bound_epsilon(without, with_canary, DELTA), mu, bound_mu(without, with_canary))


def compute_claimed_mu(spec: ReleaseSpec) -> float:
    """Return sqrt(2 rho) of the whole budget."""
    return float(
        np.sqrt(2 * float(convert_epsilon_to_rho(spec.privacy.epsilon, spec.privacy.delta, spec.effective_accountant)))
    )


def main(options: Sequence[str]) -> int:
    """Print the table; 1 if the release is above its claim or a planted fault is below it."""
    parser = argparse.ArgumentParser(prog="python -m audit", description="Lower bounds on epsilon, from many runs.")
    parser.add_argument("--runs", type=int, default=5_000, help="runs of each table for the release")
    parser.add_argument("--mutant-runs", type=int, default=1_500, help="the same for each planted fault")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--markdown", type=Path, help="also write the table into this page, between its marks")
    arguments = parser.parse_args(options)
    lines = []
    print(f"delta {DELTA:g}, confidence {CONFIDENCE:.0%} each", " | ".join(HEADER), sep="\n", flush=True)
    with ProcessPoolExecutor(arguments.workers, multiprocessing.get_context("spawn")) as pool:
        for epsilon in EPSILONS:
            pair = find_worst_pair(make_audited_spec(epsilon))
            for name in RELEASES:
                runs = arguments.mutant_runs if name in MUTANTS else arguments.runs
                lines.append(audit_release(pool, epsilon, name, runs, pair))
                print(" | ".join(lines[-1].cells()), flush=True)
    if arguments.markdown:
        write_table(arguments.markdown, "audit", *list_by_release([line.cells() for line in lines]))
    return int(any((line.epsilon_bound.value > line.epsilon) != (line.name in MUTANTS) for line in lines))


def list_by_release(lines: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return a header and a line for each release or fault: its bounds on epsilon and mu at every claim."""
    claims, bounds = dict[str, None](), dict[str, list[str]]()
    for epsilon, name, _, epsilon_bound, mu, mu_bound, _ in lines:
        claims[f"epsilon {epsilon}, mu {mu}"] = None
        bounds.setdefault(name, []).append(f"{epsilon_bound.partition(' (')[0]}, {mu_bound.partition(' (')[0]}")
    return ("at least", *claims), [(name, *cells) for name, cells in bounds.items()]


def choose_columns(
    columns: Sequence[int], header: Sequence[str], lines: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the lines that a page shows of a table: some of its columns."""
    shown, *rows = (tuple(line[column] for column in columns) for line in (header, *lines))
    return shown, rows


def write_table(page: Path, mark: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Put a table between the page's two marks of that name; ValueError if it has none."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(f"<!-- {mark}: begin -->\n")
    _, end, after = rest.partition(f"<!-- {mark}: end -->")
    if not (begin and end):
        raise ValueError(f"{page} has no marks for the table {mark!r}")
    rows = [header, ("---",) * len(header), *lines]
    page.write_text(before + begin + "".join(f"| {' | '.join(r)} |\n" for r in rows) + end + after, encoding="utf-8")

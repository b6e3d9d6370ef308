"""dp-recorder beside this project's own instruments, as two tables: every case, and every planted fault."""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from audit.planted_faults import BY_NAME, FAULTS, Fault, ScaledNoise
from audit.recorder import ERROR, REPLAY, SENSITIVITY, load_harness, record_case, record_fault
from audit.referee_cases import IN_MEMORY
from audit.referee_tables import Effort
from audit.table import choose_columns, write_table
from audit.tightness import Effort as SearchEffort
from audit.tightness import choose_runs, draw_evidence, find_worst_neighbours, is_fault
from privsyn.tasks.privacy.noise import OpenDPNoise

INSTALL = "dp-recorder is not installed in this environment: docs/audit.md says how"
NOT_SEEN = "not seen"

CASE_HEADER = (
    "mechanism and unit",
    "neighbours",
    "answers",
    "the referee: of the sensitivity",
    "dp-recorder: of the sensitivity",
    "the referee: of the price",
    "dp-recorder: composed epsilon",
    "epsilon promised",
    "dp-recorder: found",
)
CASE_COLUMNS = (0, 2, 6, 7)
"""Columns of CASE_HEADER that the page shows."""

FAULT_HEADER = (
    "planted fault",
    "the referee",
    "tight bounds",
    "dp-recorder: replay",
    "dp-recorder: sensitivity",
    "dp-recorder: composition",
    "dp-recorder: samples",
)
PAGE_FAULT_HEADER = ("planted fault", "the referee", "tight bounds", "dp-recorder")


def join_checks(line: Sequence[str]) -> tuple[str, ...]:
    """Return the line of a fault in the order of PAGE_FAULT_HEADER, with dp-recorder's checks in one cell."""
    checks = (head.partition(": ")[2] for head in FAULT_HEADER[3:])
    seen = [
        f"{check} {cell.removeprefix('found').removeprefix(': ')}".strip()
        for check, cell in zip(checks, line[3:], strict=True)
        if cell != NOT_SEEN
    ]
    return (line[0], *(cell.removeprefix("found: ") for cell in line[1:3]), ", ".join(seen) or NOT_SEEN)


def compare_case(place: int, effort: Effort) -> tuple[tuple[str, ...], bool]:
    """Return the line of one case in the order of CASE_HEADER, and whether either instrument found something."""
    case = IN_MEMORY[place]
    verdict, recording = case.judge(effort), record_case(case, effort, OpenDPNoise())
    messages = "; ".join(f"{check}: {message}" for check, message in recording.findings.items())
    line = (
        case.name,
        f"{recording.replayed:,}",
        f"{recording.answers:,}",
        f"{verdict.sensitivity_share:.0%}",
        f"{max(recording.looks.values()):.0%}",
        f"{verdict.price_share:.1%}",
        f"{recording.epsilon:.2f}",
        f"{recording.claimed:.3g}",
        messages or "nothing",
    )
    return line, bool(messages or verdict.violations or recording.passes_claim)


def compare_fault(place: int, effort: Effort, samples: int) -> tuple[tuple[str, ...], bool]:
    """Return the line of one fault in the order of FAULT_HEADER, and whether both sides found it."""
    fault = FAULTS[place]
    case = BY_NAME[fault.case]
    ours = (_ask_referee(fault, effort), _ask_tight_bounds(fault))
    trusted, sampled = record_fault(fault, effort, samples, case)
    moved = max(trusted.looks.values())
    theirs = (
        "found" if trusted.findings.keys() & {REPLAY, ERROR} else NOT_SEEN,
        f"found: {moved:.1f} times" if SENSITIVITY in trusted.findings else NOT_SEEN,
        f"found: epsilon {trusted.epsilon:.1f} for {trusted.claimed:.3g}" if trusted.passes_claim else NOT_SEEN,
        f"found: {max(sampled.sampled.values()):.1f} times mu" if sampled.passes_samples else NOT_SEEN,
    )
    both = all(any(cell != NOT_SEEN for cell in side) for side in (ours, theirs))
    return (fault.name, *ours, *theirs), both


def _ask_referee(fault: Fault, effort: Effort) -> str:
    case = BY_NAME[fault.case]
    with fault.plant(case):
        try:
            violations = case.judge(effort, change=fault.change).violations
        except KeyError:
            return "found: the step is handed no private table"
    passed = max((v.moved / v.allowed for v in violations if v.allowed), default=0.0)
    return f"found: {passed:.1f} times" if violations else NOT_SEEN


def _ask_tight_bounds(fault: Fault) -> str:
    case, noise = BY_NAME[fault.case], ScaledNoise(OpenDPNoise(), fault.noise)
    with fault.plant(case):
        try:
            search = find_worst_neighbours(case, SearchEffort(4, 2, 8), change=fault.change)
        except KeyError:
            return "found: the step is handed no private table"
    if search.attained > search.mu * (1 + 1e-9):
        return f"found: {search.attained / search.mu:.1f} times mu"
    look = max(search.looks.values(), key=lambda difference: difference.attained)
    return "found by draws" if is_fault(draw_evidence(look, noise, choose_runs(look)), look.mu) else NOT_SEEN


def main(arguments: Sequence[str]) -> int:
    """Print both tables; 1 if a release has a finding, or a planted fault has none; 2 without dp-recorder."""
    parser = argparse.ArgumentParser(prog="python -m audit recorder", description="dp-recorder on every case.")
    parser.add_argument("--neighbours", type=int, default=Effort().neighbours, help="neighbours of each kind")
    parser.add_argument("--samples", type=int, default=20_000, help="draws of each look for a planted fault")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--markdown", type=Path, help="also write the tables into this page, between its marks")
    parsed = parser.parse_args(arguments)
    try:
        load_harness()
    except ModuleNotFoundError:
        print(INSTALL)
        return 2
    effort, cases, faults = Effort(parsed.neighbours), list[tuple[str, ...]](), list[tuple[str, ...]]()
    wrong = False
    with ProcessPoolExecutor(parsed.workers, multiprocessing.get_context("spawn")) as pool:
        print(" | ".join(CASE_HEADER), flush=True)
        for line, found in pool.map(compare_case, range(len(IN_MEMORY)), [effort] * len(IN_MEMORY)):
            cases.append(line)
            wrong |= found
            print(" | ".join(line), flush=True)
        print(" | ".join(FAULT_HEADER), flush=True)
        many = ([effort] * len(FAULTS), [parsed.samples] * len(FAULTS))
        for line, found in pool.map(compare_fault, range(len(FAULTS)), *many):
            faults.append(line)
            wrong |= not found
            print(" | ".join(line), flush=True)
    if parsed.markdown:
        write_table(parsed.markdown, "recorder", *choose_columns(CASE_COLUMNS, CASE_HEADER, cases))
        write_table(parsed.markdown, "faults", PAGE_FAULT_HEADER, [join_checks(fault) for fault in faults])
    return int(wrong)

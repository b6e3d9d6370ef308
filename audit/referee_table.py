"""The referee as a table: every case against many tables, from several seeds."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from audit.referee import Relation, Verdict, Violation
from audit.referee_cases import CASES
from audit.referee_tables import LARGE
from audit.table import write_table
from privsyn.pipelines.table_pairs import split_step_name
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise, SeededNoise

SEEDS = 3
"""Bases, and their noise, of each case."""

MARK = "referee"
HEADER = (
    "mechanism",
    "unit",
    "looks",
    "neighbours",
    "orders",
    "of the declared sensitivity",
    "of the price",
    "one row more of a person, of the sensitivity",
)
PAGE_HEADER = ("mechanism", "cases", *HEADER[5:])


@dataclass(frozen=True)
class CaseLine:
    """One line of the table: what the tables of all seeds moved at most."""

    mechanism: str
    unit: str
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def violations(self) -> list[Violation]:
        """Return what moved further than is declared."""
        return [violation for verdict in self.verdicts for violation in verdict.violations]

    def count(self, relation: Relation) -> int:
        """Return how many tables of one relation were tried."""
        return sum(verdict.tried[relation] for verdict in self.verdicts)

    def list_looks(self) -> list[str]:
        """Return the looks that asked something, each once, without tables of a tree and numbers of rounds."""
        steps = (step for verdict in self.verdicts for step in verdict.asked)
        return list(dict.fromkeys(name_look(step) for step in steps))

    def cells(self) -> tuple[str, ...]:
        """Return the line as text, in the order of HEADER."""
        replaced = self.count(Relation.REPLACED)
        return (
            self.mechanism,
            self.unit,
            ", ".join(look.replace("_", " ") for look in self.list_looks()),
            f"{self.count(Relation.NEIGHBOUR):,}",
            f"{self.count(Relation.REORDERED):,}",
            f"{max(verdict.sensitivity_share for verdict in self.verdicts):.0%}",
            f"{max(verdict.price_share for verdict in self.verdicts):.1%}",
            f"{max(verdict.replaced_share for verdict in self.verdicts):.0%}" if replaced else "",
        )


def summarize_by_mechanism(lines: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return a line for each mechanism, in the order of PAGE_HEADER: the largest shares of its cases."""
    groups: dict[str, list[Sequence[str]]] = {}
    for line in lines:
        groups.setdefault(line[0], []).append(line)
    return [
        (name, str(len(cases)), *(max((case[column] for case in cases), key=_read_share) for column in (5, 6, 7)))
        for name, cases in groups.items()
    ]


def _read_share(cell: str) -> float:
    return float(cell.rstrip("%") or -1)


def name_look(step: str) -> str:
    """Return the look of a step, without the table of a table pair and the number of a round."""
    return re.sub(r"_[0-9]+$", "", split_step_name(step)[1])


def judge_case(place: int, seeds: int) -> CaseLine:
    """Return the line of one case, in a process of its own.

    The first noise is the release's own, OpenDP's; the others have seeds.
    """
    case, begin = CASES[place], time.monotonic()
    sources: list[NoiseSource] = [OpenDPNoise(), *map(SeededNoise, range(1, seeds))]
    verdicts = tuple(case.judge(LARGE, seed, noise) for seed, noise in enumerate(sources))
    for verdict in verdicts:
        verdict.released.clear()
    return CaseLine(case.mechanism, case.unit, verdicts, time.monotonic() - begin)


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if a look moved further than it declares."""
    parser = argparse.ArgumentParser(prog="python -m audit referee", description="True answers on many tables.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="bases of each case")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--markdown", type=Path, help="also write the table into this page, between its marks")
    parsed = parser.parse_args(arguments)
    print(" | ".join(HEADER), flush=True)
    lines = []
    with ProcessPoolExecutor(parsed.workers, multiprocessing.get_context("spawn")) as pool:
        for line in pool.map(judge_case, range(len(CASES)), [parsed.seeds] * len(CASES)):
            lines.append(line)
            print(" | ".join(line.cells()), f"({line.seconds:.0f} s)", flush=True)
            for violation in line.violations:
                print("  VIOLATION", violation, flush=True)
    if parsed.markdown:
        write_table(parsed.markdown, MARK, PAGE_HEADER, summarize_by_mechanism([line.cells() for line in lines]))
    return int(any(line.violations for line in lines))

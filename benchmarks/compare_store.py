"""The store of a comparison: one JSON line a run, added as runs end, so that an interrupted comparison goes on.

Only public tables are compared this way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Outcome = Literal["done", "time", "memory", "failed"]


@dataclass(frozen=True)
class Run:
    """One run of one method.

    outcome: "done"; "time" or "memory": stopped at the limit; "failed": the method's own error.  figures: metric ->
    value, of a run that is done.  wall, cpu: seconds of the method alone; for our own methods warm (compiled); None
    where a peer was stopped.  peak_mb: of its process.  detail: what a run that is not done said or had used.
    """

    method: str
    version: str
    table: str
    epsilon: float
    seed: int
    outcome: Outcome
    figures: Mapping[str, float] = field(default_factory=dict)
    wall: float | None = None
    cpu: float | None = None
    peak_mb: float | None = None
    machine: str = ""
    detail: str = ""

    @property
    def key(self) -> tuple[str, str, float, int]:
        """What a run is found by."""
        return (self.method, self.table, self.epsilon, self.seed)


class Store:
    """The runs in a file of JSON lines; a last line that a crash cut short is dropped, any other damage is an error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[tuple[str, str, float, int], Run] = {}
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                run = Run(**json.loads(line))
            except (ValueError, TypeError) as error:
                if number == len(lines) and not line.endswith("\n"):
                    path.write_text("".join(lines[:-1]), encoding="utf-8")
                    break
                raise ValueError(f"{path}, line {number} is not a run ({error}); take it out") from None
            self.runs[run.key] = run

    def add(self, run: Run) -> None:
        """Keep a run, on the disk too; a later run of the same key replaces an earlier one."""
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(run), allow_nan=False) + "\n")
        self.runs[run.key] = run

    def has(self, method: str, version: str, table: str, epsilon: float, seed: int) -> bool:
        """Return whether this version of the method has been run, whatever came of it."""
        found = self.runs.get((method, table, epsilon, seed))
        return found is not None and found.version == version

    def stopped(self, method: str, version: str, table: str, epsilon: float) -> Run | None:
        """Return a run of this version that was stopped at a limit at this or a smaller epsilon on this table."""
        return stopped(self.runs.values(), method, version, table, epsilon)


def describe_failure(run: Run) -> str:
    """Return in words why a run made no rows."""
    if run.outcome == "time":
        spent = re.search(r"(\d+) CPU s", run.detail)
        return f"stopped at {round(int(spent[1]) / 60)} CPU minutes" if spent else "did not finish"
    return "too much memory" if run.outcome == "memory" else run.detail.replace("|", "/")


def stopped(runs: Iterable[Run], method: str, version: str, table: str, epsilon: float) -> Run | None:
    """Return the run of the smallest epsilon, at most ``epsilon``, that a limit stopped; None if there is none."""
    found = [
        run
        for run in runs
        if (run.method, run.version, run.table) == (method, version, table)
        and run.outcome in ("time", "memory")
        and run.epsilon <= epsilon
    ]
    return min(found, key=lambda run: (run.epsilon, run.seed), default=None)

"""Find and remove files of the private folder that no run needs any more.

A run needs the tables of its own steps, which make publishing it again free.  Nothing that was paid for is ever
removed, and no note, record of the ledger, key or released folder.  Nobody needs private rows of runs whose noise is
all drawn; a later request encodes them again from the private table, at no cost.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.artifacts import Zone
from privsyn.engine.step_tables import StepRefs
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.disk import translate_os_errors
from privsyn.storage.records import Records, locate_private_records, read_note
from privsyn.storage.store import Store

HELD_FOR = 0.0
"""Seconds to wait for a running release before its data set is left out."""
_KEY = 16
"""Characters of a step's key in the name of its table."""


@dataclass(frozen=True)
class UnneededFile:
    """A file or folder of the private root, its size in bytes, and why nobody needs it."""

    path: Path
    bytes: int
    reason: str


@dataclass(frozen=True)
class Pruned:
    """Removable or removed files; ``left_out``: the data sets that a running release holds."""

    found: tuple[UnneededFile, ...]
    left_out: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The total size."""
        return sum(each.bytes for each in self.found)


def prune(settings: Settings, *, rows: bool = False, reports: bool = False, delete: bool = False) -> Pruned:
    """Find files that no run needs; remove them with ``delete``.

    ``rows``: also private rows of runs whose noise is all drawn; ``reports``: also private reports and comparisons,
    which their commands can make again.  Each data set is locked meanwhile; data sets that a running release holds are
    left out.  Raises LedgerError if the ledger, which knows what was paid for, is missing or cannot be read.
    """
    private = settings.private_root
    if not private.is_dir():
        return Pruned((), ())
    ledger = Ledger(settings.ledger, create=False)
    held: list[str] = []
    left_out: list[str] = []
    with ExitStack() as locks:
        places = [*_list_children(private / "store"), *_list_children(private / "records")]
        for dataset in sorted({path.name for path in places if path.is_dir()}):
            try:
                locks.enter_context(
                    Store(private, settings.released_root, dataset).lock(f"release-{dataset}", HELD_FOR)
                )
                held.append(dataset)
            except PrivsynError:
                left_out.append(dataset)
        unneeded = list(_find_unneeded(settings, ledger, held, rows=rows, reports=reports))
        for each in unneeded if delete else ():
            with translate_os_errors(each.path):
                shutil.rmtree(each.path) if each.path.is_dir() else each.path.unlink(missing_ok=True)
    return Pruned(tuple(unneeded), tuple(left_out))


def _find_unneeded(
    settings: Settings, ledger: Ledger, datasets: Collection[str], *, rows: bool, reports: bool
) -> Iterator[UnneededFile]:
    private = settings.private_root
    references = _list_children(private / "prefect" / "records")  # first: a run's note is there before its references
    private_reports = _list_children(private / "reports")
    notes = _list_notes(private)
    paid = {entry.key for entry in ledger.entries()}
    needed = paid | {str(key) for note in notes for key in _list_keys(note).values()}
    for dataset in datasets:
        yield from _find_tables(private, dataset, needed)
        if rows:
            yield from _find_rows(settings, ledger, dataset, notes)
    yield from _find_results(private, references, needed)
    runs = {str(note.get("run")) for note in notes}
    for path in private_reports:
        if reports or path.name not in runs:
            yield _get_data_set(path, "a private report" if path.name in runs else "a private report of no run")
    for path in _list_children(private / "compare") if reports else ():
        yield _get_data_set(path, "a comparison's results")


def _find_tables(private: Path, dataset: str, needed: Collection[str]) -> Iterator[UnneededFile]:
    """Yield stored tables and step records whose keys belong to no run and no charge."""
    short = {key[:_KEY] for key in needed}
    for path in _list_children(private / "store" / dataset):
        parts = path.name.removesuffix(".parquet").rsplit("-", 2)
        if len(parts) == 3 and parts[1] not in short:
            yield _get_data_set(path, "a table of no run")
    for path in _list_children(locate_private_records(private, dataset)):
        if path.name.startswith("step-") and path.stem.removeprefix("step-") not in needed:
            yield _get_data_set(path, "the record of a step of no run")


def _find_rows(
    settings: Settings, ledger: Ledger, dataset: str, notes: Collection[dict[str, Any]]
) -> Iterator[UnneededFile]:
    """Yield tables of private rows if all their runs have their noise."""
    records = Records(settings.private_root, dataset)
    for path in _list_children(locate_private_records(settings.private_root, dataset)):
        refs = records.load_as(path.stem, StepRefs) if path.name.startswith("step-") else None
        if refs is None:
            continue
        charges = [keys for note in notes if refs.key in (keys := _list_keys(note).values())]
        states = [{ledger.state(dataset, key) for key in keys} for keys in charges]
        if not all("spent" in of_run and "reserved" not in of_run for of_run in states):  # noise is still to be drawn
            continue
        for name, ref in refs.tables.items():
            place = Path(ref.path)
            if ref.zone is Zone.PRIVATE and name.endswith("_rows") and place.exists():
                yield _get_data_set(place, "private rows of runs whose noise is drawn")


def _find_results(private: Path, references: Collection[Path], needed: Collection[str]) -> Iterator[UnneededFile]:
    for path in references:
        if path.name.rpartition("-")[2] in needed:
            continue
        yield _get_data_set(path, "a flow's reference to a step of no run")
        try:
            result = Path(json.loads(path.read_text(encoding="utf-8"))["storage_key"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if result.is_file() and result.resolve().is_relative_to((private / "prefect" / "results").resolve()):
            yield _get_data_set(result, "a flow's result of a step of no run")


def _list_notes(private: Path) -> list[dict[str, Any]]:
    return [read_note(path) for path in sorted((private / "runs").glob("*/run.json"))]


def _list_keys(note: dict[str, Any]) -> dict[str, str]:
    keys = note.get("keys")
    return {str(k): str(v) for k, v in keys.items()} if isinstance(keys, dict) else {}


def _list_children(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not p.name.startswith(".")) if folder.is_dir() else []


def _get_data_set(path: Path, reason: str) -> UnneededFile:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return UnneededFile(path, sum(file.stat().st_size for file in files), reason)

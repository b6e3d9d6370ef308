"""The names of data sets under which a private folder knows a table, by the fingerprints in its notes of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.ledgers.audit import Entry
from privsyn.ledgers.known_tables import list_given_back
from privsyn.storage.records import read_note

LONGEST_REASON = 500
"""Most characters of a stated reason."""


def check_reason(reason: str | None, field: str, asks: str) -> str:
    """Return the stated reason, or nothing.  Raises RequestError for an empty or a very long one.

    ``field``: the field of the reason; ``asks``: what it should state.
    """
    if reason is None:
        return ""
    if not reason.strip() or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise RequestError(
            f"is not a reason of 1 to {LONGEST_REASON} printable characters",
            f"Say {asks}, or leave it out",
            field,
        )
    return reason.strip()


def find_names(known: Mapping[str, Collection[str]], fingerprints: Collection[str]) -> frozenset[str]:
    """Return data sets with a run here that read a table with one of these fingerprints, whole or as one of its files.

    ``known``: as from :func:`map_fingerprints`.
    """
    return frozenset(name for name, theirs in known.items() if not set(fingerprints).isdisjoint(theirs))


def find_same_tables(private_root: Path, entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Return the pairs of data sets that share a table, or a file of one, by name."""
    known = map_fingerprints(private_root, entries)
    return [(a, b) for a, b in combinations(sorted(known), 2) if known[a] & known[b]]


def map_fingerprints(private_root: Path, entries: Sequence[Entry]) -> dict[str, set[str]]:
    """Return data set -> the fingerprints of its tables and of their files, by the notes of runs.

    ``entries``: the ledger's; they give the data set of a run whose note lacks it.  Runs that gave back all their
    charges do not count.
    """
    fingerprints: dict[str, set[str]] = defaultdict(set)
    by_run, unspent = {entry.run: entry.dataset for entry in entries}, list_given_back(entries)
    for note in _iterate_notes(private_root):
        run = str(note.get("run"))
        name = _read_dataset(note) or by_run.get(run)
        if name is not None and (name, run) not in unspent:
            fingerprints[name] |= {str(note.get("fingerprint")), *map(str, note.get("file_fingerprints") or ())}
    return fingerprints


def _iterate_notes(private_root: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((private_root / "runs").glob("*/run.json")):
        note = read_note(path)
        if isinstance(note.get("fingerprint"), str):
            yield note


def _read_dataset(note: Mapping[str, Any]) -> str | None:
    spec = note.get("spec")
    return str(spec["dataset"]) if isinstance(spec, Mapping) and "dataset" in spec else None

"""The private note of how long the ledger's history is, by which an older copy of the ledger is refused.

A ledger that was put back from an old backup is whole by itself and knows of less than was spent.  So each release
notes, after its charges are reserved and before any noise is drawn, how many entries there are and the last one's
hash; that chain fixes all before it.  A later ledger has that entry at that place, whoever else has added more.  A
note may be behind the ledger (a run killed between the two): it then asks for less, and nothing was drawn in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privsyn.base.errors import LedgerError
from privsyn.base.wording import refer_to_action
from privsyn.ledgers.audit import Entry
from privsyn.ledgers.chains import ChainedRow
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.record_kinds import LedgerRecord
from privsyn.storage.records import Records

RECORD = "ledger"
"""The private record's name."""


def open_noted_ledger(records: Records) -> LedgerRecord | None:
    """Return what was noted; None where this private folder has charged nothing to the data set yet.

    Raises PrivsynError where the note is missing beside records of steps, which are made after it.
    """
    noted = records.load_as(RECORD, LedgerRecord)
    if noted is None and records.has_any("step-", "generation-", "certificate-"):
        raise records.damaged(RECORD)
    return noted


def note_ledger(ledger: Ledger, records: Records, dataset: str) -> None:
    """Keep in the private zone which ledger the data set is charged to, and how far its history goes."""
    history = ledger.read_history()
    content: dict[str, Any] = {
        "created": history.datasets[dataset].created,
        "entries": len(history.entries),
        "periods": len(history.periods),
        "marks": len(history.marks),
        "head": _find_head(history.entries),
        "periods_head": _find_head(history.periods),
        "marks_head": _find_head(history.marks),
    }
    records.save(RECORD, content)


def refuse_older(ledger: Ledger, noted: LedgerRecord, dataset: str) -> None:
    """Raise LedgerError for a ledger that lacks noted entries: an older copy, or another history.

    ``noted``: the record; one of versions that kept no more than ``created`` says nothing here.
    """
    history = ledger.read_history()
    holds_all = _has_row(history.entries, noted.entries, noted.head)
    holds_all = holds_all and _has_row(history.periods, noted.periods, noted.periods_head)
    if holds_all and _has_row(history.marks, noted.marks, noted.marks_head):
        return
    raise LedgerError(
        f"the ledger {ledger.name} is an older copy, or another history: releases of {dataset!r} in this private "
        f"folder have seen its entry {noted.entries}, which is missing or changed",
        "Restore the newest copy and look at it with " + refer_to_action("verify_ledger") + "; nothing was read",
    )


def _has_row(rows: Sequence[Entry] | Sequence[ChainedRow], number: int, head: str | None) -> bool:
    """Return whether a row of this number (from 1; 0 for none) has this hash."""
    return number == 0 or (len(rows) >= number and rows[number - 1].hash == head)


def _find_head(rows: Sequence[Entry] | Sequence[ChainedRow]) -> str:
    return rows[-1].hash if rows else ""

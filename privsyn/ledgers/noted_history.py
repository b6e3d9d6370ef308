"""The private note of the length of the ledger's history, for refusing an older copy of the ledger.

A ledger restored from an old backup is consistent, but lacks later charges.  So each release notes the number of
entries and the last one's hash.  It does so after its charges are reserved and before any noise is drawn; the hash
chain fixes all earlier entries.  A later ledger has the same entry at the same place, whoever else has added more.  A
note may be behind the ledger (if a run was killed between the two): it then requires less, and nothing was drawn in
between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privsyn.base.errors import LedgerError
from privsyn.base.wording import refer_to_action
from privsyn.ledgers.audit import ChainedRow, Entry
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.records import LedgerRecord, Records

RECORD = "ledger"
"""The private record's name."""


def open_noted_ledger(records: Records) -> LedgerRecord | None:
    """Return the note; None if this private folder has charged nothing to the data set yet.

    Raises PrivsynError if the note is missing but records of steps exist, which are made after it.
    """
    noted = records.load_as(RECORD, LedgerRecord)
    if noted is None and records.has_any("step-", "generation-", "certificate-"):
        raise records.damaged(RECORD)
    return noted


def note_ledger(ledger: Ledger, records: Records, dataset: str) -> None:
    """Note in the private zone which ledger the data set is charged to, and the length of its history."""
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

    ``noted``: the record; a record of early versions, with only ``created``, refuses nothing.
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
    """Return whether the row with this number (from 1; 0 for none) has this hash."""
    return number == 0 or (len(rows) >= number and rows[number - 1].hash == head)


def _find_head(rows: Sequence[Entry] | Sequence[ChainedRow]) -> str:
    return rows[-1].hash if rows else ""

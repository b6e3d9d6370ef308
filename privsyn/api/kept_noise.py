"""Check that private folders still have the noisy tables that were paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.engine.step_tables import StepRefs, format_record_name
from privsyn.ledgers.audit import Entry
from privsyn.storage.records import locate_private_records, read_note
from privsyn.storage.store import TableSeals, open_seals

RELEASE_AGAIN = "the same release again restores them, for nothing, from its released folder if that is whole"
OF_A_PERIOD = (
    "a released period is not released again, so only a backup brings them back here; its released folder has them, too"
)


def list_lost_noise(entries: Sequence[Entry], settings: Settings) -> list[str]:
    """Return a sentence for each run whose private folder lacks a noisy table that was paid for.

    It looks into the private folder of the settings and, if they can be reached, into those that the ledger remembers.
    Nothing is written there.
    """
    remembered = (Path(str(e.detail["private_root"])) for e in entries if "private_root" in e.detail)
    roots = {root.resolve(): root for root in (*remembered, settings.private_root)}
    sealed = ((root, open_seals(root)) for root in roots.values())
    return [note for root, seals in sealed if seals is not None for note in _list_of_folder(root, seals, entries)]


def _list_of_folder(root: Path, seals: TableSeals, entries: Sequence[Entry]) -> list[str]:
    notes, spent = [], {e.key: e for e in entries if e.event == "spent"}
    of_periods = {e.key for e in entries if e.event == "reserve" and "period" in e.detail}
    for path in sorted((root / "runs").glob("*/run.json")):
        note = read_note(path)
        keys = note.get("keys")
        charges = [spent[key] for key in map(str, keys.values()) if key in spent] if isinstance(keys, Mapping) else []
        lost = [charge.step for charge in charges if not _has_tables(root, seals, charge)]
        if lost:
            cure = OF_A_PERIOD if any(charge.key in of_periods for charge in charges) else RELEASE_AGAIN
            notes.append(
                f"{note.get('run')}: {root} lacks what was paid for, the noisy tables of {', '.join(lost)}: {cure}"
            )
    return notes


def _has_tables(root: Path, seals: TableSeals, charge: Entry) -> bool:
    """Return whether the tables of a charge are there, as they were written."""
    try:
        path = locate_private_records(root, charge.dataset) / f"{format_record_name(charge.key)}.json"
        recorded = StepRefs.model_validate_json(path.read_bytes())
        tables = [seals.place_here(ref, charge.dataset) for ref in recorded.tables.values()]
        return all(seals.verify(ref, afresh=True) for ref in tables)
    except (OSError, ValueError, PrivsynError):
        return False

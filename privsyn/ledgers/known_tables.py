"""Second payments: one table under two names, or one request under two private folders, needs the user's word.

A table is identified by HMACs under a private root's key.  The ledger's mark of a run's table also covers the names of
the data set and the run, so all marks differ.  A reader of the ledger learns nothing about the table, not even whether
it changed; with the key and a fingerprint, one can look for it.

A charge's key follows from the table's fingerprint under the key of a private folder, so another folder asks for
another charge, and draws again.  Each reservation names its folder by a random identity, which a restored copy keeps,
and its request by a hash of public facts.  Nobody can tell across folders whether the table is the same.

The notes of runs in a private folder tell under which names of data sets it knows a table.

Marks in the ledger: identifiers of a charge's one draw of noise and of a data set's tables, and stated reasons.

A mark is an HMAC under the key of a private root, so it reveals nothing about the noise or the table.  With that root,
one can tell whether two are the same.  Marks are only ever added, and hashed in a chain of their own.

    draw    subject: the number of a charge's reservation; text: the HMAC of its noise.  One a charge.
    table   subject: a run; text: the HMAC of its private table (privsyn/ledgers/known_tables.py).
    reason  subject: another data set with the same table; text: why the two have a budget each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from sqlalchemy.engine import Connection

from privsyn.base.errors import LedgerError, RequestError
from privsyn.base.wording import Text, mention
from privsyn.ledgers.audit import ChainedRow, Dataset, Entry, append_row, audit_chain, charge_states, list_chain
from privsyn.storage.records import read_note

TABLE = "marks"


@dataclass(frozen=True)
class Mark(ChainedRow):
    """One mark, and its place in the chain."""

    kind: str
    subject: str
    text: str


def mark_rows(connection: Connection, dataset: str | None = None) -> list[Mark]:
    """Return the marks, or one data set's, oldest first; the table must exist."""
    return list_chain(connection, TABLE, Mark, dataset)


def claim_charge(
    connection: Connection, dataset: Dataset, entries: Sequence[Entry], key: str, draw: str, now: str
) -> None:
    """Record the one draw of a reserved charge.  Idempotent.

    ``entries``: the data set's.  Raises LedgerError for another draw, and for a charge that is not reserved.
    """
    charge, last = _charge(entries, key)
    entered = _draw_of(mark_rows(connection, dataset.name), charge) if charge is not None else None
    if charge is not None and entered is not None and entered.text != draw:
        raise LedgerError(
            f"the noise of the step {charge.step!r} of {charge.run} was already drawn in another copy of this private "
            "folder; nothing was read here",
            "Continue in the folder that has drawn it, and keep one private folder a data set",
        )
    if charge is None or last != "reserve":
        raise LedgerError(
            f"the charge {key[:16]} of {dataset.name!r} is not reserved, so no noise may be drawn for it",
            "Nothing was read; run the release from its start",
        )
    if entered is None:
        append_row(connection, TABLE, Mark(0, dataset.name, now, "", "", "draw", str(charge.id), draw))


def read_draw(marks: Sequence[Mark], entries: Sequence[Entry], key: str) -> str | None:
    """Return the draw recorded for the latest charge of this key, or None; both arguments are of one data set."""
    charge, _ = _charge(entries, key)
    entered = _draw_of(marks, charge) if charge is not None else None
    return None if entered is None else entered.text


def audit_marks(
    connection: Connection, *, present: bool, entries: Sequence[Entry], datasets: Mapping[str, Dataset]
) -> list[str]:
    """Return all problems of the marks, as sentences; ``present``: whether their table exists."""
    if not present:
        return []
    rows = mark_rows(connection)
    return audit_chain(connection, TABLE, rows, datasets) + _find_unfitting_draws(rows, entries)


def _charge(entries: Sequence[Entry], key: str) -> tuple[Entry | None, str]:
    """Return the latest reservation of a key, and its last event."""
    of_key = [e for e in entries if e.key == key]
    return next((e for e in reversed(of_key) if e.event == "reserve"), None), of_key[-1].event if of_key else ""


def _draw_of(marks: Sequence[Mark], charge: Entry) -> Mark | None:
    return next((m for m in marks if m.kind == "draw" and m.subject == str(charge.id)), None)


def _find_unfitting_draws(rows: Sequence[Mark], entries: Sequence[Entry]) -> list[str]:
    """Return draws without a charge, second draws of a charge, and charges given back after their noise was drawn."""
    problems: list[str] = []
    charges = {str(e.id): e for e in entries if e.event == "reserve"}
    drawn: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for row in (r for r in rows if r.kind == "draw"):
        charge = charges.get(row.subject)
        if charge is None or charge.dataset != row.dataset or row.subject in seen:
            problems.append(f"row {row.id} of the marks is a draw without a charge, or a second draw of a charge")
        else:
            drawn.add((charge.dataset, row.subject))
        seen.add(row.subject)
    return problems + _list_given_back(entries, drawn)


def _list_given_back(entries: Sequence[Entry], drawn: set[tuple[str, str]]) -> list[str]:
    reserved: dict[tuple[str, str], Entry] = {}
    problems = []
    for entry in entries:
        if entry.event == "reserve":
            reserved[entry.dataset, entry.key] = entry
        charge = reserved.get((entry.dataset, entry.key))
        if entry.event == "cancel" and charge is not None and (entry.dataset, str(charge.id)) in drawn:
            problems.append(f"entry {entry.id} gives back a charge whose noise was drawn")
    return problems


@dataclass(frozen=True)
class KnownTable:
    """The private table of a run, as the ledger may know it.

    ``fingerprints``: the whole table's, then its files'; ``mark``: (data set, run, fingerprint) -> an HMAC.  ``own``:
    the fingerprints that the private folder knows under the run's own name; ``elsewhere``: the names under which it
    knows any others.  ``reason``: the stated reason for another name (empty: none).
    """

    fingerprints: Sequence[str]
    mark: Callable[[str, str, str], str]
    elsewhere: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    reason: str = ""


def list_counting_marks(rows: Sequence[Mark], entries: Sequence[Entry]) -> list[Mark]:
    """Return the marks, except for runs that gave back all their charges: these spent nothing."""
    unspent = list_given_back(entries)
    return [row for row in rows if row.kind != "table" or (row.dataset, row.subject) not in unspent]


def list_given_back(entries: Iterable[Entry]) -> frozenset[tuple[str, str]]:
    """Return the runs, as (data set, run), that have charges and gave back every one."""
    uncancelled: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        uncancelled[entry.dataset, entry.run] += {"reserve": 1, "cancel": -1}.get(entry.event, 0)
    return frozenset(run for run, charges in uncancelled.items() if charges == 0)


def refuse_second_name(rows: Sequence[Mark], dataset: str, table: KnownTable) -> list[str]:
    """Return the table's other names with a stated reason; ``rows``: as from :func:`list_counting_marks`.

    A table that the data set has released before is not new.  Raises RequestError if the table is known under another
    name and not under this one, and no reason is stated.
    """
    new = set(table.fingerprints) - table.own
    new -= {f for row in rows if row.dataset == dataset for f in _find_matches(row, table, new)}
    others = {row.dataset for row in rows if _find_matches(row, table, new)} | table.elsewhere
    pairs = [{row.dataset, row.subject} for row in rows if row.kind == "reason"]
    open_names = sorted(others - {dataset} - {name for pair in pairs if dataset in pair for name in pair})
    if open_names and not table.reason:
        names = " and ".join(map(repr, open_names))
        raise RequestError(
            f"the private table, or a file of it, was released as {names}, and {dataset!r} would be a second lifetime "
            "budget for the same people; nothing was spent",
            f"Write dataset: {open_names[0]}, or give the reason for another one in " + mention("release.new_dataset"),
            "dataset",
        )
    return open_names


def mark_table(
    connection: Connection, entries: Sequence[Entry], dataset: str, run: str, table: KnownTable, now: str
) -> None:
    """Record the run's table, once, and the reason for its second name; raises as :func:`refuse_second_name` does.

    ``entries``: the whole ledger's.
    """
    rows = mark_rows(connection)
    for other in refuse_second_name(list_counting_marks(rows, entries), dataset, table):
        append_row(connection, TABLE, Mark(0, dataset, now, "", "", "reason", other, table.reason))
    if not any((row.kind, row.dataset, row.subject) == ("table", dataset, run) for row in rows):
        text = table.mark(dataset, run, table.fingerprints[0])
        append_row(connection, TABLE, Mark(0, dataset, now, "", "", "table", run, text))


def find_reason(rows: Iterable[Mark], first: str, second: str) -> str | None:
    """Return the stated reason why two data sets share one table, or None."""
    pair = {first, second}
    return next((row.text for row in rows if row.kind == "reason" and {row.dataset, row.subject} == pair), None)


def _find_matches(row: Mark, table: KnownTable, fingerprints: Collection[str]) -> list[str]:
    if row.kind != "table":
        return []
    return [f for f in fingerprints if table.mark(row.dataset, row.subject, f) == row.text]


STORE, REQUEST, PRIVATE_ROOT = "store", "request", "private_root"
"""The fields of a reservation's detail: the folder's identity, the request, and the folder's path."""


@dataclass(frozen=True)
class Payer:
    """The identity of the private folder that asks for charges, and the hash of its request.

    ``redraw``: the instruction for asking for new noise there.
    """

    store: str
    request: str
    redraw: Text


def refuse_second_price(entries: Sequence[Entry], payer: Payer) -> None:
    """Raise RequestError if the request was last paid for from another private folder; ``entries``: the data set's.

    Charges that were given back do not count, nor do charges of versions that named no request.
    """
    states = charge_states(entries)
    paid = (
        entry
        for entry in reversed(entries)
        if entry.event == "reserve"
        and entry.detail.get(REQUEST) == payer.request
        and states[entry.key].event != "cancel"
    )
    last = next(paid, None)
    if last is None or last.detail.get(STORE) == payer.store:
        return
    raise RequestError(
        f"the run {last.run} already paid for this request from another private folder, "
        f"{last.detail.get(PRIVATE_ROOT)}, and this would pay again; nothing was spent",
        "Set " + mention("settings.out") + " to the folder that has that run, or " + payer.redraw,
        "settings.out",
    )


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
    for path in sorted((private_root / "runs").glob("*/run.json")):
        note = read_note(path)
        if not isinstance(note.get("fingerprint"), str):
            continue
        run = str(note.get("run"))
        spec = note.get("spec")
        name = str(spec["dataset"]) if isinstance(spec, Mapping) and spec.get("dataset") else by_run.get(run)
        if name is not None and (name, run) not in unspent:
            fingerprints[name] |= {str(note.get("fingerprint")), *map(str, note.get("file_fingerprints") or ())}
    return fingerprints

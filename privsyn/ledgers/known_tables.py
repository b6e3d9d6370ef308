"""Second payments: one table under two names, or one request under two private folders, needs the user's word.

A table is identified by HMACs under a private root's key.  The ledger's mark of a run's table also covers the names of
the data set and the run, so all marks differ.  A reader of the ledger learns nothing about the table, not even whether
it changed; with the key and a fingerprint, one can look for it.

A charge's key follows from the table's fingerprint under the key of a private folder, so another folder asks for
another charge, and draws again.  Each reservation names its folder by a random identity, which a restored copy keeps,
and its request by a hash of public facts.  Nobody can tell across folders whether the table is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from privsyn.base.errors import RequestError
from privsyn.base.wording import Text, mention
from privsyn.ledgers.audit import Entry, charge_states
from privsyn.ledgers.chains import append_row
from privsyn.ledgers.marks import TABLE, Mark, mark_rows


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
    """Return the marks, except for runs that gave back all their charges.

    These runs spent nothing.
    """
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
    open_names = sorted(others - {dataset} - _list_reasoned(rows, dataset))
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
    """Return the fingerprints that match a mark."""
    if row.kind != "table":
        return []
    return [f for f in fingerprints if table.mark(row.dataset, row.subject, f) == row.text]


def _list_reasoned(rows: Sequence[Mark], dataset: str) -> set[str]:
    pairs = [{row.dataset, row.subject} for row in rows if row.kind == "reason"]
    return {name for pair in pairs if dataset in pair for name in pair}


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

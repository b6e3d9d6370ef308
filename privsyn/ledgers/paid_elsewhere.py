"""One request under two private folders: a second payment needs the user's word and is never made silently.

A charge's key follows from the table's fingerprint under the key of a private folder, so another folder asks for
another charge, and draws again.  Each reservation names its folder by a random identity, which a restored copy keeps,
and its request by a hash of public facts.  Nobody can tell across folders whether the table is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privsyn.base.errors import RequestError
from privsyn.base.wording import Text, mention
from privsyn.ledgers.audit import Entry, charge_states

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

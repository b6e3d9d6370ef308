"""What the processes of the ledger's concurrency tests run; imported by each of them, so it imports little."""

from __future__ import annotations

import contextlib

from privsyn.base.errors import BudgetRefusedError
from privsyn.data_contracts.promise import Guarantee
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho

CAP = Guarantee(epsilon=2.0, delta=1e-9)
ROOM = 50
"""How many of the charges fit under the cap."""


def reserve_many(url: str, worker: int, attempts: int) -> list[str]:
    """Reserve a fiftieth of the cap again and again; every other key is shared by all workers, own ones are closed."""
    ledger, price, got = Ledger(url), convert_epsilon_to_rho(CAP.epsilon, CAP.delta) / ROOM, []
    ledger.register("people", CAP)
    for i in range(attempts):
        key = f"shared-{i}" if i % 2 else f"own-{worker}-{i}"
        with contextlib.suppress(BudgetRefusedError):
            ledger.reserve("people", f"run-{worker}", [ChargeLine("one_way", key, price)])
            got.append(key)
            if i % 2 == 0:
                ledger.abandon("people", key, data_was_read=worker % 2 == 0)
    return got

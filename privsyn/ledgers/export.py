"""The ledger as a file for a notebook or an auditor: JSON with everything, or CSV with one line an entry."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from privsyn.ledgers.ledger import Ledger

EXPORT_VERSION = 1
FIELDS = (
    "id",
    "created",
    "dataset",
    "run",
    "step",
    "event",
    "rho",
    "rho_decimal",
    "key",
    "detail",
    "prev_hash",
    "hash",
)


def export_json(ledger: Ledger, dataset: str | None = None) -> str:
    """Return every cap, entry and row of periods, with exact sums as text ("numerator/denominator")."""
    return json.dumps({"schema_version": EXPORT_VERSION, **_export_content(ledger, dataset)}, indent=2) + "\n"


def export_csv(ledger: Ledger, dataset: str | None = None) -> str:
    """Return one line an entry; ``detail`` is JSON text, ``rho_decimal`` the nearest float to ``rho``."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, FIELDS, lineterminator="\n")
    table.writeheader()
    for entry in ledger.export(dataset):
        detail = json.dumps(entry["detail"], sort_keys=True, separators=(",", ":"))
        table.writerow({**entry, "detail": detail, "rho_decimal": repr(float(Fraction(entry["rho"])))})
    return text.getvalue()


def _export_content(ledger: Ledger, dataset: str | None) -> dict[str, Any]:
    caps = [
        {
            "dataset": s.dataset,
            "epsilon": s.cap.epsilon,
            "delta": s.cap.delta,
            "rho": f"{s.cap_rho.numerator}/{s.cap_rho.denominator}",
            "created": s.created,
            "spent": f"{s.rho.numerator}/{s.rho.denominator}",
        }
        for s in ledger.summary(dataset)
    ]
    periods = [asdict(row) for row in ledger.periods(dataset)]
    return {"datasets": caps, "entries": ledger.export(dataset), "periods": periods}

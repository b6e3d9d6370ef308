"""Gauges for Prometheus (budgets, ends of runs, verification), as files for the node exporter's textfile collector.

Everything in them is in the ledger or on the run pages; nothing is read from rows.  No two files share a gauge, because
the collector refuses that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from privsyn.base.settings import Settings
from privsyn.storage.disk import translate_os_errors

if TYPE_CHECKING:
    from privsyn.ledgers.audit import DatasetSummary

LABELS = ("dataset",)
LAST_RUN, LAST_RUN_WORDS = "privsyn_last_run_timestamp_seconds", "End of the last run of the flow that ended well."


def note_success(budget: DatasetSummary, settings: Settings) -> None:
    """Write the time of the data set's last successful release, and its budget.

    Does nothing if PRIVSYN_METRICS is unset.  Raises PrivsynError if the files cannot be written.
    """
    if settings.metrics is None:
        return
    registry = CollectorRegistry()
    success = Gauge("privsyn_last_success_timestamp_seconds", "End of the last release.", LABELS, registry=registry)
    success.labels(budget.dataset).set_to_current_time()
    cap = Gauge("privsyn_budget_cap_rho", "The lifetime cap.", LABELS, registry=registry)
    cap.labels(budget.dataset).set(float(budget.cap_rho))
    remaining = Gauge("privsyn_budget_left_rho", "What no release has taken of the cap.", LABELS, registry=registry)
    remaining.labels(budget.dataset).set(float(budget.remaining_rho))
    epsilon = Gauge("privsyn_budget_left_epsilon", "The same, at the cap's delta.", LABELS, registry=registry)
    epsilon.labels(budget.dataset).set(budget.remaining_epsilon)
    _write(settings.metrics / f"privsyn_dataset_{budget.dataset}.prom", registry)


def note_run(dataset: str, flow: str, settings: Settings) -> None:
    """Write the time of the flow's last successful run; otherwise as :func:`note_success`."""
    if settings.metrics is None:
        return
    registry = CollectorRegistry()
    gauge = Gauge(LAST_RUN, LAST_RUN_WORDS, (*LABELS, "flow"), registry=registry)
    gauge.labels(dataset, flow).set_to_current_time()
    _write(settings.metrics / f"privsyn_{flow}_{dataset}.prom", registry)


def note_verification(problems: Sequence[str], settings: Settings) -> None:
    """Write the time of the last verification and its number of problems; otherwise as :func:`note_success`."""
    if settings.metrics is None:
        return
    registry = CollectorRegistry()
    when = Gauge(
        "privsyn_last_verification_timestamp_seconds", "The last verification of the ledger.", registry=registry
    )
    when.set_to_current_time()
    Gauge("privsyn_verification_problems", "Problems that it found.", registry=registry).set(len(problems))
    _write(settings.metrics / "privsyn_verification.prom", registry)


def _write(file: Path, registry: CollectorRegistry) -> None:
    """Replace the file in one step, readable by everyone because the exporter is another user."""
    with translate_os_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(file), registry)
        file.chmod(0o644)

"""A proposal: a requested release, with its public plan and how it is requested.  Nothing is opened yet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from privsyn.base.settings import Settings
from privsyn.counting.engine import Engine
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import ReportProgress
from privsyn.engine.plan import Plan
from privsyn.ledgers.known_tables import check_reason
from privsyn.sources.open_source import AnyPlace
from privsyn.sources.private_table import Source
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise

OpenTable = Callable[[AnyPlace, ReleaseSpec], Source]


def log_warning(sentence: str) -> None:
    """Log the sentence, by default on standard error."""
    logging.getLogger("privsyn").warning(sentence)


def ignore_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """A requested release.

    Attributes:
        plan: Its public plan.
        settings: The settings to release with.
        fresh: New noise is asked for.
        data: A table in memory, or a place, instead of ``spec.data``; None: ``spec.data``.
        new_dataset: Why a table known under another name gets a second one; None: no reason is stated.
        early: Why the period is released before it begins; None: it is not.
        calendar: The time zone of the period's beginning; None: this computer's.
        opened: Opens the private table; None: it is opened as a table of the spec's columns.
        engine: Counts the rows; None: the engine that the spec names.
        noise: The source of noise.
        report: Called with progress.
        warn: Called with a sentence that the caller may not expect.
    """

    plan: Plan
    settings: Settings
    fresh: bool = False
    data: AnyPlace | None = None
    new_dataset: str | None = None
    early: str | None = None
    calendar: str | None = None
    opened: OpenTable | None = None
    engine: Engine | None = None
    noise: NoiseSource = field(default_factory=OpenDPNoise)
    report: ReportProgress = ignore_progress
    warn: Callable[[str], None] = log_warning

    @property
    def spec(self) -> ReleaseSpec:
        """The spec of the request."""
        return self.plan.request.spec

    def read_reason_for_new_name(self) -> str:
        """Return the stated reason for the table's second name, or nothing.

        Raises RequestError for an empty or a very long one.
        """
        return check_reason(self.new_dataset, "release.new_dataset", "why these people get a second budget")

    def read_reason_for_early_period(self) -> str:
        """Return the stated reason for an early release of a period, or nothing.  Raises RequestError as above."""
        return check_reason(self.early, "release.early", "why the period is released before it begins")

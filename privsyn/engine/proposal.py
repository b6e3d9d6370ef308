"""A proposal: a release that is asked for, by its public plan and by how it is asked.  Nothing of it is opened yet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from privsyn.base.settings import Settings
from privsyn.counting.engine import Engine
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import ReportProgress
from privsyn.engine.names_of_tables import check_reason
from privsyn.engine.plan import Plan
from privsyn.sources.open_source import AnyPlace
from privsyn.sources.private_table import Source
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise

OpenTable = Callable[[AnyPlace, ReleaseSpec], Source]


def log_warning(sentence: str) -> None:
    """Log the sentence: on standard error, unless a program says otherwise."""
    logging.getLogger("privsyn").warning(sentence)


def ignore_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """A release that is asked for.

    Attributes:
        plan: Its public plan.
        settings: Where it is to be made.
        fresh: New noise is asked for.
        data: A table in memory in place of ``spec.data``; None: it is there.
        new_dataset: Why a table that is known under another name gets a second one; None: nobody said.
        early: Why the period is released before it begins; None: it is not.
        calendar: The time zone by which the period begins; None: this computer's.
        opened: How the private table is opened; None: as a table of the spec's columns.
        engine: Who counts the rows; None: the engine that the spec names.
        noise: The source of noise.
        report: Who is told of progress.
        warn: Who is told, in a sentence, what the caller may not expect.
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
        """The spec of what is asked for."""
        return self.plan.request.spec

    def read_reason_for_new_name(self) -> str:
        """Return the stated reason for the table's second name, or nothing.

        Raises RequestError for one that says nothing.
        """
        return check_reason(self.new_dataset, "release.new_dataset", "why these people get a second budget")

    def read_reason_for_early_period(self) -> str:
        """Return the stated reason for a period before it begins, or nothing.  Raises RequestError as above."""
        return check_reason(self.early, "release.early", "why the period is released before it begins")

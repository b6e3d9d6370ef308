"""Errors that people read: one clear paragraph that names the field and the cure, and an exit code.

Belongs here: the few exception types that the command line turns into a message.  Does not belong here:
printing them (flows/cli/).  Their text never holds a private value: it may name columns, files and
fields of the spec, nothing read from rows.
"""

from __future__ import annotations


def sentence(text: str) -> str:
    """The text with one mark at its end: a full stop, or its own question mark."""
    text = text.rstrip(". ")
    return text if text.endswith("?") else f"{text}."


class PrivsynError(Exception):
    """Base of every error that is meant for people; ``exit_code`` is the command's exit status."""

    exit_code = 1

    def __init__(self, problem: str, cure: str = "", field: str = "") -> None:
        self.problem, self.cure, self.field = problem.rstrip("."), cure.rstrip("."), field
        super().__init__(self.paragraph())

    def paragraph(self) -> str:
        """``field: problem. Cure.`` as one paragraph: what is not printable in a name is shown as a mark."""
        head = sentence(f"{self.field}: {self.problem}" if self.field else self.problem)
        text = f"{head} {sentence(self.cure)}" if self.cure else head
        return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


class RequestError(PrivsynError):
    """The request is wrong (spec, bounds, paths, files); nothing was released and nothing spent."""

    exit_code = 2


class BudgetRefusedError(PrivsynError):
    """The ledger refused: the data set's cap would be passed; nothing was read and nothing spent."""

    exit_code = 3


class PeriodReleasedError(PrivsynError):
    """The period of the data set was released before, by ``run``: nothing is left to do, so its exit status is 0."""

    exit_code = 0

    def __init__(self, dataset: str, period: str, run: str) -> None:
        self.dataset, self.period, self.run = dataset, period, run
        super().__init__(
            f"the period {period} of {dataset!r} is released already, by the run {run}; nothing was read, nothing "
            "was spent"
        )


class LedgerError(PrivsynError):
    """The ledger cannot be trusted or reached; closed before any look at the data."""


class LedgerMissingError(LedgerError):
    """There is no ledger where one was looked for; ``ledger`` is its address for people."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        super().__init__(
            f"the ledger {ledger} is missing",
            "Restore it from a backup, or set PRIVSYN_LEDGER to where it is; a new one would forget what was spent",
        )


class ContractError(PrivsynError):
    """A table broke its contract; ``failures`` lists what, without private values."""

    def __init__(self, problem: str, failures: list[dict[str, str]], cure: str = "") -> None:
        self.failures = failures
        super().__init__(problem, cure)

"""Errors for people: one clear paragraph that names the field and the cure, and an exit code.

The text never has a private value: it may name columns, files and fields of the spec, but nothing from rows.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from copy import copy
from typing import Any, Self

from privsyn.base.wording import API, Text, Vocabulary, make_printable, make_sentence, mention


class PrivsynError(Exception):
    """Base of all errors meant for people.

    ``problem``: what is wrong.  ``cure``: what to do, or empty.  ``field``: the wrong field, or empty.
    ``line``: the field's line in the file that states the field, if any.  ``exit_code``: the command's exit status.
    ``vocabulary``: the words of ``str(error)``.
    """

    exit_code = 1
    vocabulary: Vocabulary = API

    def __init__(self, problem: Text, cure: Text = "", field: str = "", line: int | None = None) -> None:
        self.problem, self.cure, self.field, self.line = problem.rstrip("."), cure.rstrip("."), field, line
        super().__init__(problem)

    def paragraph(self, vocabulary: Vocabulary | None = None) -> str:
        """Return ``field: problem. Cure.`` as one paragraph; unprintable characters in names are replaced.

        ``vocabulary``: the words to use; by default the error's own.
        """
        words = vocabulary or self.vocabulary
        where = words.field(self.field) + (f" (line {self.line})" if self.line else "")
        text = words.text(make_sentence(f"{where}: " + self.problem if self.field else self.problem))
        if self.cure:
            text = f"{text} {words.text(make_sentence(self.cure))}"
        return make_printable(text)

    def about(self, field: str, mentioning: Mapping[str, str] | None = None) -> Self:
        """Return a copy about another field; ``mentioning``: field -> the field that its texts mention instead.

        For callers whose own argument caused the error.
        """
        error = copy(self)
        error.field, error.line = field, None
        for old, new in (mentioning or {}).items():
            error.problem, error.cure = (
                text.replace(mention(old), mention(new)) for text in (error.problem, error.cure)
            )
        return error

    def __str__(self) -> str:
        return self.paragraph()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by attributes, for errors whose constructors take other arguments."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class RequestError(PrivsynError):
    """The request is wrong (spec, bounds, paths, files); nothing was released and nothing spent."""

    exit_code = 2


class BudgetRefusedError(PrivsynError):
    """The ledger refused because the data set's cap would be exceeded; nothing was read and nothing spent."""

    exit_code = 3


class LostNoiseError(PrivsynError):
    """A noisy table was paid for but is missing; nothing was redrawn and nothing spent."""

    exit_code = 4


class PeriodReleasedError(PrivsynError):
    """The run ``run`` has already released the data set's period: nothing is left to do, so the exit status is 0."""

    exit_code = 0

    def __init__(self, dataset: str, period: str, run: str) -> None:
        self.dataset, self.period, self.run = dataset, period, run
        super().__init__(
            f"the period {period} of {dataset!r} is released already, by the run {run}; nothing was read, nothing "
            "was spent"
        )


class LedgerError(PrivsynError):
    """The ledger cannot be trusted or reached; raised before any look at the data."""


class LedgerMissingError(LedgerError):
    """The ledger does not exist; ``ledger`` is its printable address."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        super().__init__(
            f"the ledger {ledger} is missing",
            f"Restore it from a backup, or set {mention('settings.ledger')} to where it is; a new one would "
            "forget what was spent",
        )


class ContractError(PrivsynError):
    """A table broke its contract; ``failures`` lists how, without private values."""

    def __init__(self, problem: Text, failures: list[dict[str, str]], cure: Text = "") -> None:
        self.failures = failures
        super().__init__(problem, cure)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error, or an error it arose from, is a refusal of memory by the system or ``ulimit -v``.

    Arrow raises a MemoryError.  A library that cannot be loaded, or a thread that cannot start, raises another error,
    recognised by its text.
    """
    below = error.__cause__ or error.__context__
    return _is_refused_memory(error) or (below is not None and is_out_of_memory(below))


def _is_refused_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    words = str(error).lower()
    if isinstance(error, ImportError | OSError):
        unmapped = "failed to map segment" in words and "not permitted" not in words  # a disk mounted noexec
        return unmapped or "cannot allocate memory" in words
    return isinstance(error, RuntimeError) and "can't start new thread" in words


OUT_OF_MEMORY = "the memory that this program may take is used up"
MORE_MEMORY = (
    "Give it more (`ulimit -v` limits it) and run again: finished steps are kept, and nothing is charged twice"
)


def locate_error(error: BaseException) -> str:
    """Return the function and line that raised ``error``; unlike the error's text, they contain no private value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace else "an unknown place"

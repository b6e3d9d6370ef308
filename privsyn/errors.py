"""Errors that people read: one clear paragraph that names the field and the cure, and an exit code.

An error names fields of the models (a field of the spec, an argument of a function, a setting) and things to do; each
surface has a vocabulary that says how its readers know them.  The API's is here, the command line's in
``flows/cli/vocabulary.py`` and the run form's in ``flows/form_vocabulary.py``.

The text never holds a private value: it may name columns, files and fields of the spec, nothing read from rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

REQUESTS = frozenset(
    {
        "release",
        "evaluate",
        "compare",
        "rerun",
        "improve",
        "query",
        "forecast",
        "add_formats",
        "draft_spec",
        "ledger",
        "backup",
        "deploy",
        "settings",
    }
)
"""What a field may be an argument of: its name begins so.  Any other field is one of a file that people write (the
release spec, an evaluation's settings), and is named as in that file on every surface."""


@dataclass(frozen=True)
class Mention:
    """A field in a text, which a vocabulary names."""

    field: str


@dataclass(frozen=True)
class Action:
    """An action of the reader in a text, which a vocabulary names."""

    name: str


@dataclass(frozen=True)
class Phrase:
    """A text with fields and actions in it: ``"Set " + mention("settings.ledger") + " to that ledger"``."""

    parts: tuple[str | Mention | Action, ...]

    def __add__(self, other: str | Phrase) -> Phrase:
        return Phrase((*self.parts, *_parts(other)))

    def __radd__(self, other: str) -> Phrase:
        return Phrase((other, *self.parts))

    def __str__(self) -> str:
        """The text as the API says it."""
        return API.text(self)

    def mentioning(self, fields: Mapping[str, str]) -> Phrase:
        """The text with other fields mentioned: field -> the one in its place."""
        return Phrase(tuple(Mention(fields.get(p.field, p.field)) if isinstance(p, Mention) else p for p in self.parts))


Text: TypeAlias = str | Phrase


def mention(field: str) -> Phrase:
    """The name of a field, to be put into a text."""
    return Phrase((Mention(field),))


def action(name: str) -> Phrase:
    """Something to do, to be put into a text; each vocabulary has it as a clause without a subject."""
    return Phrase((Action(name),))


@dataclass(frozen=True)
class Vocabulary:
    """How the readers of one surface know fields and actions."""

    fields: Mapping[str, str]
    actions: Mapping[str, str]

    def field(self, name: str) -> str:
        """The field's name.  Raises LookupError for an argument or a setting without a word."""
        if name not in self.fields and name.partition(".")[0] in REQUESTS:
            raise LookupError(f"the vocabulary has no word for the field {name!r}")
        return self.fields.get(name, name)

    def action(self, name: str) -> str:
        """What is to be done.  Raises LookupError for an action without words."""
        if name not in self.actions:
            raise LookupError(f"the vocabulary has no words for the action {name!r}")
        return self.actions[name]

    def text(self, text: Text) -> str:
        """The text with every field and action in this vocabulary's words."""
        return "".join(self._part(part) for part in _parts(text))

    def _part(self, part: str | Mention | Action) -> str:
        if isinstance(part, Mention):
            return self.field(part.field)
        return self.action(part.name) if isinstance(part, Action) else part


def _parts(text: Text) -> tuple[str | Mention | Action, ...]:
    return text.parts if isinstance(text, Phrase) else (text,)


API = Vocabulary(
    fields={
        "release.data": "data",
        "release.spec": "spec",
        "release.fresh": "fresh",
        "release.period": "period",
        "release.new_dataset": "new_dataset",
        "release.time_zone": "time_zone",
        "evaluate.release": "release",
        "evaluate.data": "data",
        "evaluate.holdout": "holdout",
        "evaluate.against": "against",
        "evaluate.settings": "settings",
        "evaluate.labels": "labels",
        "evaluate.epsilon_report": "epsilon_report",
        "evaluate.delta": "delta",
        "compare.methods": "methods",
        "compare.epsilons": "epsilons",
        "compare.seeds": "seeds",
        "compare.holdout": "holdout",
        "compare.labels": "labels",
        "improve.release": "release",
        "improve.epsilon": "epsilon",
        "rerun.release": "release",
        "rerun.keep": "keep",
        "rerun.prior": "prior",
        "query.release": "release",
        "query.columns": "columns",
        "query.where": "where",
        "query.formula": "formula",
        "query.probabilities": "probabilities",
        "query.level": "level",
        "query.population": "population",
        "query.other": "earlier",
        "query.plot": "plot",
        "forecast.rows": "rows",
        "forecast.epsilons": "epsilons",
        "forecast.earlier": "earlier",
        "forecast.public": "public",
        "forecast.strength": "strength",
        "forecast.seeds": "seeds",
        "forecast.plot": "plot",
        "add_formats.release": "release",
        "add_formats.formats": "formats",
        "draft_spec.data": "data",
        "draft_spec.dictionary": "dictionary",
        "draft_spec.dataset": "dataset",
        "draft_spec.csv": "csv",
        "ledger.dataset": "dataset",
        "ledger.against": "against",
        "backup.file": "file",
        "deploy.file": "file",
        "settings.out": "out or PRIVSYN_OUT",
        "settings.released": "PRIVSYN_RELEASED",
        "settings.private": "PRIVSYN_PRIVATE",
        "settings.released_url": "PRIVSYN_RELEASED_URL",
        "settings.database_url": "PRIVSYN_DATABASE_URL",
        "settings.database_password_file": "PRIVSYN_DATABASE_PASSWORD_FILE",
        "settings.ledger": "PRIVSYN_LEDGER",
        "settings.dask": "PRIVSYN_DASK",
        "settings.dask_ca": "PRIVSYN_DASK_CA",
        "settings.dask_certificate": "PRIVSYN_DASK_CERTIFICATE",
        "settings.dask_key": "PRIVSYN_DASK_KEY",
        "settings.policy": "PRIVSYN_POLICY",
        "settings.login_file": "PRIVSYN_LOGIN_FILE",
        "settings.metrics": "PRIVSYN_METRICS",
        "settings.threads": "PRIVSYN_THREADS",
    },
    actions={
        "redraw": "release again with `fresh=True`",
        "draft_spec": "`privsyn.draft_spec()`",
        "list_runs": "`privsyn.ledger().entries(dataset)`",
        "verify_ledger": "`privsyn.ledger().verify()`",
        "show_whole_error": "its `__cause__` is the whole error",
    },
)
"""The words of the Python functions: arguments by their names, settings by their environment variables."""


def sentence(text: Text) -> Text:
    """The text with one mark at its end: a full stop, or its own question mark."""
    *head, last = _parts(text)
    if isinstance(last, str):
        last = last.rstrip(". ")
        last = last if last.endswith("?") else f"{last}."
        return Phrase((*head, last)) if head else last
    return Phrase((*head, last, "."))


def sentences(texts: Iterable[Text]) -> Text:
    """The texts as sentences after each other; empty ones are left out."""
    whole: Text = ""
    for text in (t for t in texts if t):
        whole = whole + (" " if whole else "") + sentence(text)
    return whole


class PrivsynError(Exception):
    """Base of every error that is meant for people.

    ``problem`` says what is wrong, ``cure`` what to do (or is empty); ``field`` is the field that is wrong (or empty),
    and ``line`` where it stands in the file that it was read from, if it was.  ``exit_code`` is the command's exit
    status; ``vocabulary`` has the words of ``str(error)``.
    """

    exit_code = 1
    vocabulary: Vocabulary = API

    def __init__(self, problem: Text, cure: Text = "", field: str = "", line: int | None = None) -> None:
        self.problem, self.cure, self.field, self.line = _open(problem), _open(cure), field, line
        super().__init__(problem)

    def paragraph(self, vocabulary: Vocabulary | None = None) -> str:
        """``field: problem. Cure.`` as one paragraph: what is not printable in a name is shown as a mark.

        ``vocabulary``: whose words are used; without it, the error's own.
        """
        words = vocabulary or self.vocabulary
        where = words.field(self.field) + (f" (line {self.line})" if self.line else "")
        text = words.text(sentence(f"{where}: " + self.problem if self.field else self.problem))
        if self.cure:
            text = f"{text} {words.text(sentence(self.cure))}"
        return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)

    def about(self, field: str, mentioning: Mapping[str, str] | None = None) -> Self:
        """A copy that names another field; ``mentioning``: field -> the one that its texts mention in its place.

        For a caller whose argument, under a name of its own, turned out to be wrong.
        """
        error = copy(self)
        error.field, error.line = field, None
        error.problem, error.cure = (
            text.mentioning(mentioning or {}) if isinstance(text, Phrase) else text
            for text in (self.problem, self.cure)
        )
        return error

    def __str__(self) -> str:
        return self.paragraph()

    def __reduce__(self) -> tuple[Any, ...]:
        """By its attributes, for the errors whose constructors take other arguments."""
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[PrivsynError], args: tuple[Any, ...], attributes: dict[str, Any]) -> PrivsynError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


def _open(text: Text) -> Text:
    """The text without full stops at its end."""
    return text.rstrip(".") if isinstance(text, str) else text


class RequestError(PrivsynError):
    """The request is wrong (spec, bounds, paths, files); nothing was released and nothing spent."""

    exit_code = 2


class BudgetRefusedError(PrivsynError):
    """The ledger refused: the data set's cap would be passed; nothing was read and nothing spent."""

    exit_code = 3


class PeriodReleasedError(PrivsynError):
    """The run ``run`` has released the period of the data set: nothing is left to do, so the exit status is 0."""

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
    """The ledger does not exist; ``ledger`` is its address for people."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        super().__init__(
            f"the ledger {ledger} is missing",
            "Restore it from a backup, or set "
            + mention("settings.ledger")
            + " to where it is; a new one would forget what was spent",
        )


class ContractError(PrivsynError):
    """A table broke its contract; ``failures`` lists what, without private values."""

    def __init__(self, problem: Text, failures: list[dict[str, str]], cure: Text = "") -> None:
        self.failures = failures
        super().__init__(problem, cure)


def error_place(error: BaseException) -> str:
    """The function and line that raised ``error``: unlike the error's own text, they hold no private value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace else "an unknown place"

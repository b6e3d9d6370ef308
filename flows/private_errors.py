"""Errors that leave a flow: they hold only words for people; the private zone keeps the rest.

The words are those that a run form shows: its fields, and the worker's variables as settings.

A command that calls a flow in its own process hands over its settings; a worker's runs take them from the environment.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.base.wording import API, SETTINGS, Vocabulary, list_fields
from privsyn.storage.disk import replace_file

_T = TypeVar("_T")
_given: ContextVar[Settings | None] = ContextVar("privsyn_settings", default=None)


@contextmanager
def set_within(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Set a context variable inside the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def use_settings(settings: Settings) -> AbstractContextManager[None]:
    """Use ``settings`` in flows that are called inside the block."""
    return set_within(_given, settings)


def get_settings() -> Settings:
    """Return the caller's settings, else the environment's."""
    return _given.get() or Settings()


def _name_form_field(*titles: str) -> str:
    return f"the field {' > '.join(titles)} of the run form"


FORM = Vocabulary(
    fields={
        **API.fields,
        **{field: f"{variable} of the worker" for field, variable in SETTINGS.items()},
        **{
            field: _name_form_field(name.replace("_", " ").title())
            for field, name in list_fields("release", "evaluate", "comparison", "ledger")
        },
        "release.data": _name_form_field("Spec", "Data"),
        "evaluate.labels": _name_form_field("Settings", "Labels"),
        "comparison.labels": _name_form_field("Settings", "Labels"),
        "evaluate.delta": "delta",
        "ledger.against": "against",
    },
    actions={
        "redraw": "run again with " + _name_form_field("Fresh") + " ticked",
        "draft_spec": "`privsyn spec draft`",
        "list_runs": "`privsyn ledger show`",
        "verify_ledger": "the flow `budget-report`",
        "show_whole_error": "the whole error is in the private folder, in failure.txt",
    },
)
"""The words of the forms.  A request that no form takes is named as in Python; a spec is drafted with the command."""


@contextmanager
def hide_private_errors(work: str) -> Iterator[None]:
    """Let only errors for people out of the block, in the run form's words; ``work`` is the name of the work.

    The errors behind them are left out, because Prefect logs the whole chain to its database, and a parser's error,
    say, may quote a row.  The private zone keeps the chain as ``failure.txt``.
    """
    try:
        yield
    except PrivsynError as error:
        error.vocabulary = FORM
        if error.__cause__ is not None:
            _keep_privately(error)
        raise error from None
    except Exception as error:
        _keep_privately(error)
        raise PrivsynError(
            f"an unexpected {type(error).__name__} stopped the {work}",
            "Run again: finished steps are kept and nothing is charged twice; the whole error is in the private "
            "folder, in failure.txt",
        ) from None


def _keep_privately(error: Exception) -> None:
    """Write the whole error into the private zone, for its owner only; a full disk does not hide the error."""
    root = get_settings().private_root
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replace_file(root / "failure.txt") as temporary:
            temporary.write_text("".join(traceback.format_exception(error)), encoding="utf-8")

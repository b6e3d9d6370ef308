"""Errors that leave a flow: words for people only, the rest kept in the private zone.

Belongs here: cutting an error's chain before Prefect writes it to its database.  Does not belong here: the errors
themselves (flows/errors.py).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flows.errors import PrivsynError
from flows.settings import Settings
from flows.storage.disk import replacing


@contextmanager
def words_only(what: str) -> Iterator[None]:
    """Let only errors meant for people out, without the errors behind them; ``what`` stopped is named.

    Prefect logs the whole chain of an error to its database, and the text of, say, a parser's error may quote
    a row.  The chain is kept in the private zone instead, as ``failure.txt``.
    """
    try:
        yield
    except PrivsynError as error:
        if error.__cause__ is not None:
            _keep_privately(error)
        raise error from None
    except Exception as error:
        _keep_privately(error)
        raise PrivsynError(
            f"an unexpected {type(error).__name__} stopped the {what}",
            "Run again: finished steps are kept and nothing is charged twice; the whole error is in the private "
            "folder, in failure.txt",
        ) from None


def _keep_privately(error: Exception) -> None:
    """Write the whole error into the private zone, for its owner only; a full disk must not hide the error itself."""
    root = Settings().private_root
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(root / "failure.txt") as temporary:
            temporary.write_text("".join(traceback.format_exception(error)), encoding="utf-8")

"""Faults at every write: each place where a release writes below some folders, found while it runs, fails once.

Python itself reports its opens, renames, new folders and removals (``sys.addaudithook``), so a write that is added
anywhere is met without being listed here.  What Python does not see is wrapped: fsync, the bytes of a file, Arrow's
writer, and the ledger's commit.  ``tests/architecture`` holds that nothing else in flows/ writes.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import sqlalchemy as sa

from privsyn.ledgers.database import Database
from tests.support.places import ROOT

FLOWS = str(ROOT / "privsyn")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = {
    "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "os.symlink", "os.link", "os.utime",
}  # fmt: skip
Site = tuple[str, str, str]
"""What is done (open, os.rename, fsync ...), where in flows/ (file, function, line), and to what: a file's name."""

_RANDOM = re.compile(r"[0-9a-f]{8,}")

Act = Callable[[Site, str], None]
"""Called before each write with its site and path; raises or kills to make it fail."""

_act: Act | None = None
_roots: tuple[str, ...] = ()
_hooked = False


@contextlib.contextmanager
def at_every_write(roots: list[Path], act: Act) -> Iterator[None]:
    """Call ``act`` before every write below ``roots`` that code in flows/ asks for."""
    global _act, _roots, _hooked
    if not _hooked:
        sys.addaudithook(_hook)  # for the life of the process; it does nothing outside of this block
        _hooked = True
    with contextlib.ExitStack() as wrapped:
        for owner, name, wrapper in _WRAPPERS:
            wrapped.enter_context(_replaced(owner, name, wrapper))
        _roots, _act = tuple(str(r) for r in roots), act
        try:
            yield
        finally:
            _act = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _act is None:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & WRITING:
            _fire(event, path)
    elif event in EVENTS and _changes_something(event, Path(os.fsdecode(arguments[0]))):
        _fire(event, arguments[0])


def _changes_something(event: str, path: Path) -> bool:
    """Not a folder that is there already, nor the removal of what is not there."""
    return not (event == "os.mkdir" and path.is_dir()) and not (event == "os.remove" and not os.path.lexists(path))


def _fire(kind: str, path: Any) -> None:
    global _act
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    act = _act
    if act is None or not text.startswith(_roots):
        return
    where = _place()
    if where:
        _act = None  # what `act` does itself is not looked at
        try:
            act((kind, where, _RANDOM.sub("*", Path(text).name)), text)
        finally:
            _act = act


def _place() -> str:
    """The innermost frame in flows/."""
    frame: Any = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(FLOWS):
        frame = frame.f_back
    if frame is None:
        return ""
    code = frame.f_code
    return f"{Path(code.co_filename).name}:{code.co_name}:{frame.f_lineno}"


@contextlib.contextmanager
def _replaced(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, wrapper(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _fsync(original: Any) -> Any:
    def fsync(handle: int) -> None:
        _fire("fsync", f"/proc/self/fd/{handle}" if not _roots else str(Path(f"/proc/self/fd/{handle}").resolve()))
        original(handle)

    return fsync


def _halves(original: Any) -> Any:
    """Half of the content is in the file when the fault comes."""

    def write(path: Path, content: Any, *rest: Any, **more: Any) -> Any:
        original(path, content[: len(content) // 2], *rest, **more)
        _fire("half written", path)
        return original(path, content, *rest, **more)

    return write


def _arrow(kind: str, path_of: Callable[..., Any]) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        def write(*arguments: Any, **more: Any) -> Any:
            _fire(kind, path_of(*arguments))
            return original(*arguments, **more)

        return write

    return wrap


def _commit(original: Any) -> Any:
    @contextlib.contextmanager
    def write(database: Database) -> Iterator[Any]:
        with original(database) as connection:
            yield connection
            try:
                _fire("ledger", database.name)
            except OSError as error:  # what SQLite says then
                words = "attempt to write a readonly database" if error.errno == 13 else "database or disk is full"
                raise sa.exc.OperationalError("COMMIT", {}, sqlite3.OperationalError(words)) from None

    return write


def _where(writer: Any, *_: Any) -> Any:
    return writer.where


_WRAPPERS: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (os, "fsync", _fsync),
    (Path, "write_text", _halves),
    (Path, "write_bytes", _halves),
    (pq.ParquetWriter, "write_batch", _arrow("arrow write", _where)),
    (pq.ParquetWriter, "close", _arrow("arrow close", _where)),
    (pq, "write_table", _arrow("arrow table", lambda table, where: where)),
    (Database, "write", _commit),
]

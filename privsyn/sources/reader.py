"""A reader: a snapshot of one table that is not in files, and the messages for its errors.

A driver's own messages can hold a row, a query or a password, so they are only searched for patterns, never passed on.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from privsyn.base.errors import RequestError
from privsyn.base.places import DataUrl
from privsyn.data_contracts.columns import Column
from privsyn.sources.private_table import BY_A_VALUE, Note

NOT_OF_TYPE = "not of its column's type"
"""The repair of a cell that its column's type cannot hold: it becomes null."""


class Reader(ABC):
    """One snapshot of a table: its columns with their types, and passes over its rows."""

    schema: pa.Schema
    place: str | None = None
    """The URL with the version that is read, for a table with versions."""

    @abstractmethod
    def read(self, columns: Sequence[str], batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of about ``batch_rows``, with the columns in this order; ``note`` counts repairs.

        Each pass has the same rows.  A value that does not fit its column's type becomes null; other rows are
        unaffected.
        """

    def close(self) -> None:  # noqa: B027 - files hold nothing open
        """End the snapshot."""


@dataclass(frozen=True)
class Connector:
    """What a package adds to the registry's ``connectors``, by a scheme of URLs or the ending of files (``.xlsx``).

    ``open_table``: from the URL or the path, and the spec's columns (None: there is no spec yet), returns a reader;
    ``options``: what may stand behind the question mark of its URLs.
    """

    open_table: Callable[[DataUrl | Path, Mapping[str, Column] | None], Reader]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class ErrorPattern:
    """The message for an error that matches ``pattern``, its cure, and its field.

    ``words`` without the subject "the database" follow the name of the table.
    """

    pattern: str
    words: str
    cure: str
    field: str = "data"


AGAIN = "; the same request then goes on where it stopped"
_ONE_SELECT = (
    "Try it in the database's own shell; it has to be one SELECT, with no second statement behind it, and with every "
    "bracket, quotation mark and comment closed"
)
_VALUE = ErrorPattern(
    r"^(ConversionException|OutOfRangeException)\b|invalid input syntax|out of range|division by zero|malformed JSON",
    f"cannot be read to its end {BY_A_VALUE}",
    "Do not compute or convert in the query: the spec says how each value is treated",
    "query",
)
REFUSED_BY_DATABASE = (
    ErrorPattern(
        r"password|authentication|role \"[^\"]*\" does not exist|pg_hba",
        "the database refuses the user or the password",
        "Set PGUSER and PGPASSWORD, or write a line into the file that PGPASSFILE names (~/.pgpass)",
    ),
    ErrorPattern(
        r"certificate|SSL (error|connection|is not)|does not support SSL",
        "the database cannot be reached as safely as the URL asks",
        "Look at sslmode and sslrootcert in the URL, and at the server's certificate",
    ),
    ErrorPattern(
        r"translate host name|Name or service not known",
        "the database is on a computer that cannot be found",
        "Correct the host",
    ),
    ErrorPattern(r"database \"[^\"]*\" does not exist", "the database does not exist", "Correct its name"),
    ErrorPattern(r"too many (connections|clients)|connection slots", "the database has no free connection", "Wait"),
    ErrorPattern(r"locked|Conflicting lock", "the database is locked by another program", "Wait, or end that program"),
    ErrorPattern(
        r"unable to open|Cannot open",
        "the database is in a file that cannot be opened",
        "Check its path and permissions",
    ),
    ErrorPattern(
        r"not a database|not a valid DuckDB|malformed|corrupt",
        "the database is in a file that is not such a database",
        "Check the file",
    ),
    ErrorPattern(
        r"refused|No such file|starting up|shutting down|terminating connection|closed the connection|reset by peer"
        r"|no connection|SSL SYSCALL|timeout|timed out|57P0|08\d\d\d|could not (send|receive)|not accepting",
        "the database does not answer, or broke off; no budget is lost",
        "Start the database, or correct its address" + AGAIN,
    ),
)
"""Errors of the connection to a database, for reading and writing, in matching order."""

_READING = (
    _VALUE,
    ErrorPattern(
        r"42P01|no such table|Table with name .* does not exist|cross-database references|unknown database",
        "is not there",
        "Correct the name: it is case-sensitive, and the part before a dot is the schema",
        "query",
    ),
    ErrorPattern(r"42501|permission denied", "may not be read by this user", "GRANT it SELECT on the table", "query"),
    ErrorPattern(r"25006|read-only", "would be written by the query", "Write a SELECT", "query"),
    ErrorPattern(
        r"external access|disabled (by|through) configuration|PermissionException|Permission Error",
        "is not in the database: files and extensions are not opened",
        "Read tables and views of the database only",
        "query",
    ),
    *REFUSED_BY_DATABASE,
    ErrorPattern(
        r"\b42\w{3}\b|syntax|incomplete input|unrecognized token|Parser Error|Binder Error|Catalog Error"
        r"|no such column",
        "cannot be read: the database does not take the SQL",
        _ONE_SELECT,
        "query",
    ),
)


@contextmanager
def translate_errors(
    url: DataUrl, known: Sequence[ErrorPattern] = _READING, other: ErrorPattern = _VALUE
) -> Iterator[None]:
    """Raise RequestError for a driver's error while a table is read: the first match in ``known``, else ``other``."""
    problem = None
    try:
        yield
    except (RequestError, GeneratorExit, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # drivers raise errors of many kinds
        problem = find_problem(error, known, other)
    if problem is not None:
        words = problem.words if problem.words.startswith("the database") else f"{url.where} {problem.words}"
        raise RequestError(
            words, problem.cure, "data" if url.query is None else problem.field
        ) from None  # a driver's message may hold a row


def find_problem(error: Exception, known: Sequence[ErrorPattern], other: ErrorPattern) -> ErrorPattern:
    """Return the first pattern in ``known`` that matches a driver's error, else ``other``."""
    text = f"{type(error).__name__} {getattr(error, 'sqlstate', '')} {error}"
    plain = re.sub(r'"[^"]*"', '""', text)  # a quoted value must not match a pattern
    return next((p for p in known if re.search(p.pattern, plain, re.IGNORECASE)), other)


@contextmanager
def refuse_damaged(path: Path, why: str = BY_A_VALUE) -> Iterator[None]:
    """Raise RequestError for any error of a file reader, whose message may hold a value.

    ``why``: the end of the message; empty if only the structure of the file is read.
    """
    damaged = False
    try:
        yield
    except (RequestError, GeneratorExit, KeyboardInterrupt, MemoryError):
        raise
    except Exception:  # readers raise errors of many kinds
        damaged = True
    if damaged:
        raise RequestError(
            f"{path} cannot be read, breaks off or is damaged {why}".strip(), "Write or copy it again", "data"
        )


def check_file(url: DataUrl) -> None:
    """Raise RequestError if the database's file does not exist."""
    if not url.file.is_file():
        raise RequestError(f"there is no file {url.file}", "Check the path", "data")


def is_moment(type_: pa.DataType) -> bool:
    """Return whether a type holds days or moments, which may be infinite in a database."""
    return pa.types.is_date(type_) or pa.types.is_timestamp(type_)


def quote_name(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a text quoted for SQL."""
    return "'" + text.replace("'", "''") + "'"


def build_select(columns: Sequence[str], rows: str) -> str:
    """Return a SELECT of some columns or expressions; ``rows``: the part after FROM."""
    return f"SELECT {', '.join(columns)} FROM {rows}"  # noqa: S608 - names are quoted, and a query is the requester's


def name_rows(url: DataUrl) -> str:
    """Return the part after FROM: the table, with its schema if the name has one, or the query.

    The database must have parsed the query alone before (:func:`get_query`); otherwise the query could leave its
    brackets.
    """
    if url.query is not None:
        return f"(\n{get_query(url)}\n) AS rows_of_query"
    return ".".join(map(quote_name, str(url.table).split(".")))


def get_query(url: DataUrl) -> str:
    """Return the query without a final semicolon.

    A reader first lets the database parse the query alone, without running it.  A closing bracket that would leave the
    brackets of :func:`name_rows` is a syntax error there.  A second statement is one there, or inside the brackets.
    Raises RequestError for an empty query.
    """
    query = str(url.query).strip().rstrip(";")
    if not query:
        raise RequestError("is empty", "Write one SELECT", "query")
    return query


def refuse_further_statements(number: int) -> None:
    """Raise RequestError unless the database found exactly one statement in the query."""
    if number != 1:
        raise RequestError(f"has {number} statements", _ONE_SELECT, "query")

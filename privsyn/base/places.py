"""Places as people write them: paths, and the URLs of tables in databases, workbooks and object stores.

``~`` stands for a home folder, and names are text.  No message shows a URL, because it may contain a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeGuard
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from privsyn.base.errors import RequestError
from privsyn.base.registry import find_parts, load_part
from privsyn.data_contracts.unicode import is_unicode

_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
WORKBOOK = "excel"
"""A sheet of a workbook, or one with column names below its first row; other workbooks need no URL."""

FILE_SCHEMES = ("sqlite", "duckdb", WORKBOOK)
"""Single-file databases, and workbooks."""

STORE_SCHEMES = ("s3", "gs", "abfs")
"""Object stores: the URL has a bucket, and the key of an object or of the folder with a table's objects."""

SERVER_SCHEMES = ("sftp",)
"""File servers: the URL has a host, optionally with a user and a port, and a path from the server's root."""

LAKE_SCHEMES = ("delta", *(f"delta+{scheme}" for scheme in STORE_SCHEMES), "iceberg")
"""Delta: a local folder or one in a store; Iceberg: a catalog and a table name in it, or a local metadata file."""

_ROWS = ("table", "query")
_SERVER_OPTIONS = ("host", "port", "user", "sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout")
"""Connection options of a PostgreSQL URL; any others come from the environment."""

OPTIONS = {
    "postgresql": (*_ROWS, *_SERVER_OPTIONS),
    **dict.fromkeys(FILE_SCHEMES, _ROWS),
    **dict.fromkeys((*STORE_SCHEMES, *SERVER_SCHEMES), ()),
    **dict.fromkeys(LAKE_SCHEMES, ("version",)),
    "iceberg": ("snapshot",),
    WORKBOOK: ("sheet", "header"),
}
"""Scheme -> the options after its question mark."""


def expand_path(path: str | Path, field: str) -> Path:
    """Return the path with ``~`` expanded.  Raises RequestError that names ``field`` for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        problem = f"{str(path)[:200]!r} begins with the home folder of an unknown user"
        raise RequestError(problem, "Write the folder's whole path", field) from None


def refuse_undecodable(path: str | Path, field: str) -> None:
    """Raise RequestError that names ``field`` for a non-UTF-8 path, which tables, records and ledger cannot name.

    Non-UTF-8 bytes appear in a path as lone surrogates.
    """
    if not is_unicode(str(path)):
        raise RequestError(f"{str(path)[:200]!r} is not UTF-8 text", "Rename the file or folder", field)


SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,80}")


def make_safe_name(name: str, field: str = "") -> str:
    """Return ``name`` if it is safe in a path (lower-case letters, digits, - and _); RequestError otherwise."""
    if not SAFE_NAME.fullmatch(name):
        cure = "Use small letters, digits, - and _, at most 81, a letter or digit first"
        raise RequestError(f"{name!r} is not a valid file name", cure, field)
    return name


def _list_options(scheme: str) -> tuple[str, ...] | None:
    """Return the options of a scheme, of this module or of one that a package adds; None: it is not known."""
    if scheme in OPTIONS:
        return OPTIONS[scheme]
    if scheme in find_parts("stores"):
        return ()
    return tuple(load_part("connectors", scheme).options) if scheme in find_parts("connectors") else None


def _is_store(scheme: str) -> bool:
    """Return whether tables are files there: in an object store, on a server, or in a store that a package adds."""
    return scheme in (*STORE_SCHEMES, *SERVER_SCHEMES) or (scheme not in OPTIONS and scheme in find_parts("stores"))


FORMS = "postgresql://HOST/DATABASE?table=NAME, sqlite:///FILE?table=NAME, duckdb:///FILE?table=NAME or s3://BUCKET/KEY"
_PASSWORD_CURE = "Take it out, and set PGPASSWORD, or write it into the file that PGPASSFILE names (~/.pgpass)"  # noqa: S105
_KEY_CURE = "Take it out: a store's keys come from the environment, or from the files of the provider's own programs"


@dataclass(frozen=True)
class DataUrl:
    """A table of a database, a workbook, an object store or a lake.

    ``host``: a server, with its port if the URL has one (empty: taken from the environment), or a store's bucket;
    ``path``: the file, the server's database, or a key in the bucket; ``options``: the URL's query, for a database one
    of ``table`` and ``query``.
    """

    scheme: str
    user: str
    host: str
    path: str
    options: dict[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str, name: str = "data", *, needs_rows: bool = True) -> Self:
        """Parse a URL.  Raises RequestError about the field ``name``, without showing the URL.

        ``needs_rows``: whether it must name a table or a query.
        """
        try:
            parts = urlsplit(text.strip())
            port, password, user, host = parts.port, parts.password, parts.username or "", parts.hostname or ""
            host = f"[{host}]" if ":" in host else host  # an IPv6 address
            options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            if "\0" in unquote(text):
                raise ValueError("paths and SQL have no null byte")
        except ValueError:
            raise RequestError("is a URL that cannot be read", f"Write {FORMS}", name) from None
        known_options = _list_options(parts.scheme)
        if known_options is None:
            problem = f"is a URL ({parts.scheme}://), a kind that is not supported"
            raise RequestError(problem, f"Name a file or folder here, or {FORMS}", name)
        needs_rows = needs_rows and _ROWS[0] in known_options
        has_user = parts.scheme in ("postgresql", *SERVER_SCHEMES) or parts.scheme.endswith("abfs")
        if password is not None or "password" in dict(options) or (user and not has_user):
            cure = _PASSWORD_CURE if parts.scheme == "postgresql" else _KEY_CURE
            raise RequestError("holds a password or a key, and specs and notes are kept", cure, name)
        _check_options(known_options, [option for option, _ in options], name, needs_rows=needs_rows)
        if parts.fragment:
            raise RequestError("has a #, which ends a URL", "Write %23 instead", name)
        if parts.scheme in (*FILE_SCHEMES, "delta") and host:
            problem = f"names the host {host!r}, and {parts.scheme} is a file here"
            raise RequestError(problem, f"Write {parts.scheme}:///FILE with three slashes, four before a root", name)
        path = unquote(parts.path).removeprefix("/")
        url = cls(parts.scheme, unquote(user), f"{host}:{port}" if port else host, path, dict(options))
        if parts.scheme in SERVER_SCHEMES and not host:
            raise RequestError("names no server", f"Write {parts.scheme}://USER@HOST/FOLDER/FILE", name)
        if url.in_store and parts.scheme not in SERVER_SCHEMES and (not host or port):
            raise RequestError("names no bucket", f"Write {parts.scheme}://BUCKET/KEY", name)
        if not path and (needs_rows or parts.scheme in ("delta", "iceberg", WORKBOOK)):
            missing = "table" if parts.scheme in LAKE_SCHEMES else "file" if parts.scheme == WORKBOOK else "database"
            raise RequestError(f"names no {missing}", f"Write {FORMS}", name)
        return url

    @property
    def is_file(self) -> bool:
        """Whether the table is in a local file, or in its own local folder."""
        return self.scheme in (*FILE_SCHEMES, "delta") or (self.scheme == "iceberg" and not self.host)

    @property
    def file(self) -> Path:
        """The file of the database or the workbook."""
        return Path(self.path)

    @property
    def in_store(self) -> bool:
        """Whether the table's files lie in an object store or on a server of files."""
        return _is_store(self.scheme.rpartition("+")[2])

    @property
    def bucket(self) -> str:
        """The bucket of an object store, the container before its account, or a file server."""
        return self.host if self.scheme in SERVER_SCHEMES else self.user or self.host

    @property
    def account(self) -> str:
        """The account of the container, if the URL has one."""
        return self.host.partition(".")[0] if self.user and self.scheme not in SERVER_SCHEMES else ""

    @property
    def table(self) -> str | None:
        """The table's name; None for a query."""
        return self.options.get("table")

    @property
    def query(self) -> str | None:
        """The SQL query; None for a table."""
        return self.options.get("query")

    @property
    def where(self) -> str:
        """The table's name in error messages."""
        if self.in_store or self.scheme in LAKE_SCHEMES:
            return f"{self.scheme}://{self.bucket}/{self.path}"
        if self.scheme == WORKBOOK:
            return self.file.name
        return f"the table {self.table!r}" if self.query is None else "the query's table"

    def __str__(self) -> str:
        """Return the URL, which never has a password."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        options = urlencode(self.options, quote_via=quote, safe="/,:")
        return f"{self.scheme}://{user}{self.host}/{quote(self.path)}" + (f"?{options}" if options else "")

    def is_within(self, allowed: Iterable[str]) -> bool:
        """Return whether one of the ``allowed`` URLs is this URL's server, database or table.

        A URL without a table allows every table and query of its database; a URL without a database allows its whole
        server.
        """
        return any(self._is_within(DataUrl.parse(url, needs_rows=False)) for url in allowed if is_url(url))

    def _is_within(self, other: DataUrl) -> bool:
        if self.is_file or other.is_file:
            return False
        if self.in_store or other.in_store:
            above, below = other.path.strip("/"), self.path.strip("/")
            stores = {(url.scheme.rpartition("+")[2], url.user, url.host) for url in (self, other)}
            is_below = not above or f"{below}/".startswith(f"{above}/")
            return len(stores) == 1 and is_below and ".." not in below.split("/")
        is_same = other.path in ("", self.path) and (other.query is None or other.query == self.query)
        differ = {n for n, value in other.options.items() if n not in _ROWS and self.options.get(n) != value}
        if self.scheme not in OPTIONS and differ:
            return False  # what an option of a package's scheme changes is not known: it may name another data set
        return is_same and self._server == other._server and (other.table is None or other.table == self.table)

    @property
    def _server(self) -> tuple[str, str, str]:
        name, _, port = self.host.rpartition(":") if re.search(r":\d+$", self.host) else (self.host, "", "")
        host, port = self.options.get("host", name), self.options.get("port", port)
        return self.scheme, host.lower(), port or "5432"


def _check_options(known: Sequence[str], options: Sequence[str], name: str, *, needs_rows: bool) -> None:
    for option in options:
        if option not in known or options.count(option) > 1:
            problem = f"has the option {option[:40]!r}" + (" twice" if options.count(option) > 1 else "")
            known_options = ", ".join(known) or "none"
            raise RequestError(problem, f"Known are {known_options}; others are read from the environment", name)
    if _ROWS[0] not in known:
        return
    rows = [option for option in options if option in _ROWS]
    if len(rows) != 1 and (needs_rows or rows):
        cure = "End it with ?table=NAME, or write the SQL as `query` beside it, and not both"
        raise RequestError(f"names {'a table and a query' if rows else 'no table'}", cure, name)


def is_url(place: object) -> TypeGuard[str]:
    """Return whether ``place`` is text that begins like a URL."""
    return isinstance(place, str) and _URL.match(place.strip()) is not None


def is_object_url(place: object) -> TypeGuard[str]:
    """Return whether ``place`` is the URL of an object store."""
    return is_files_url(place) and place.strip().partition("://")[0].lower() not in SERVER_SCHEMES


def is_files_url(place: object) -> TypeGuard[str]:
    """Return whether ``place`` is the URL of files in an object store or on a server."""
    return is_url(place) and _is_store(place.strip().partition("://")[0].lower())


def resolve_place(place: str | Path, name: str, folder: Path | None = None, *, needs_rows: bool = True) -> str:
    """Return the place of a table: a URL, or an absolute path from ``folder`` (None: the working folder).

    A database's file is resolved in the same way.  Raises RequestError about the field ``name``.
    """
    base = (folder or Path()).absolute()
    if isinstance(place, str) and is_url(place):
        url = DataUrl.parse(place, name, needs_rows=needs_rows)
        return str(replace(url, path=str(base / expand_path(url.path, name))) if url.is_file else url)
    return str(base / expand_path(place, name))

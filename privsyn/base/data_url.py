"""Where a private table is: a path, or the URL of a table in a database or an object store.

No message holds a URL: somebody may have written a password into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeGuard
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from privsyn.base.errors import RequestError
from privsyn.base.paths import expand_path

_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
FILE_SCHEMES = ("sqlite", "duckdb")
"""Databases that are one file."""

STORE_SCHEMES = ("s3", "gs", "abfs")
"""Object stores: the URL has a bucket and the key of an object, or of the folder that holds a table's objects."""

_ROWS = ("table", "query")
_SERVER_OPTIONS = ("host", "port", "user", "sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout")
"""What a PostgreSQL URL may say of the connection; what else there is comes from the environment."""

OPTIONS = {
    "postgresql": (*_ROWS, *_SERVER_OPTIONS),
    **dict.fromkeys(FILE_SCHEMES, _ROWS),
    **dict.fromkeys(STORE_SCHEMES, ()),
}
"""Scheme -> the options after its question mark."""

FORMS = "postgresql://HOST/DATABASE?table=NAME, sqlite:///FILE?table=NAME, duckdb:///FILE?table=NAME or s3://BUCKET/KEY"
_PASSWORD_CURE = "Take it out, and set PGPASSWORD, or write it into the file that PGPASSFILE names (~/.pgpass)"  # noqa: S105
_KEY_CURE = "Take it out: a store's keys come from the environment, or from the files of the provider's own programs"


@dataclass(frozen=True)
class DataUrl:
    """A table of a database or an object store.

    ``host``: a server's, with its port if the URL has one (empty: the environment says it), or a store's bucket;
    ``path``: the file, the name of the server's database, or a key in the bucket; ``options``: what follows the
    question mark, for a database one of ``table`` and ``query`` in it.
    """

    scheme: str
    user: str
    host: str
    path: str
    options: dict[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str, name: str = "data", *, needs_rows: bool = True) -> Self:
        """Return the parts of a URL.  Raises RequestError about the field ``name``, which does not show the URL.

        ``needs_rows``: it has to say a table or a query.
        """
        try:
            parts = urlsplit(text.strip())
            port, password, user, host = parts.port, parts.password, parts.username or "", parts.hostname or ""
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            if "\0" in unquote(text):
                raise ValueError("no path and no SQL has a byte 0")
        except ValueError:
            raise RequestError("is a URL that cannot be read", f"Write {FORMS}", name) from None
        known = OPTIONS.get(parts.scheme)
        if known is None:
            problem = f"is a URL ({parts.scheme}://), and tables are not read from there"
            raise RequestError(problem, f"Name a file or folder here, or {FORMS}", name)
        in_store = parts.scheme in STORE_SCHEMES
        if password is not None or "password" in dict(given) or (user and parts.scheme in ("s3", "gs")):
            cure = _KEY_CURE if in_store else _PASSWORD_CURE
            raise RequestError("holds a password or a key, and specs and notes are kept", cure, name)
        _check_options(parts.scheme, [option for option, _ in given], name, needs_rows=needs_rows)
        if parts.fragment:
            raise RequestError("has a mark #, which ends a URL", "Write %23 in its place", name)
        if parts.scheme in FILE_SCHEMES and host:
            problem = f"names the host {host!r}, and {parts.scheme} is a file here"
            raise RequestError(problem, f"Write {parts.scheme}:///FILE with three slashes, four before a root", name)
        path = unquote(parts.path).removeprefix("/")
        if in_store and (not host or port):
            raise RequestError("names no bucket", f"Write {parts.scheme}://BUCKET/KEY", name)
        if not path and needs_rows and not in_store:
            raise RequestError("names no database", f"Write {FORMS}", name)
        return cls(parts.scheme, unquote(user), f"{host}:{port}" if port else host, path, dict(given))

    @property
    def is_file(self) -> bool:
        """Whether the database is a file here."""
        return self.scheme in FILE_SCHEMES

    @property
    def file(self) -> Path:
        """The database's file."""
        return Path(self.path)

    @property
    def in_store(self) -> bool:
        """Whether the table lies in an object store."""
        return self.scheme in STORE_SCHEMES

    @property
    def bucket(self) -> str:
        """The bucket of an object store, or the container, which stands before its account."""
        return self.user or self.host

    @property
    def account(self) -> str:
        """The account of the container, if the URL says it."""
        return self.host.partition(".")[0] if self.user else ""

    @property
    def table(self) -> str | None:
        """The table's name; None where a query is asked."""
        return self.options.get("table")

    @property
    def query(self) -> str | None:
        """The SQL query; None where a table is named."""
        return self.options.get("query")

    @property
    def where(self) -> str:
        """The table, as errors name it."""
        if self.in_store:
            return f"{self.scheme}://{self.bucket}/{self.path}"
        return f"the table {self.table!r}" if self.query is None else "the query's table"

    def __str__(self) -> str:
        """Return the URL: it has no password."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        options = urlencode(self.options, quote_via=quote, safe="/,:")
        return f"{self.scheme}://{user}{self.host}/{quote(self.path)}" + (f"?{options}" if options else "")

    def is_within(self, allowed: Iterable[str]) -> bool:
        """Return whether one of the URLs ``allowed`` is this one's server, database or table.

        One without a table allows every table and query of its database, one without a database those of its server.
        """
        return any(self._is_within(DataUrl.parse(url, needs_rows=False)) for url in allowed if is_url(url))

    def _is_within(self, other: DataUrl) -> bool:
        if self.is_file or other.is_file:
            return False
        if self.in_store or other.in_store:
            above, below = other.path.strip("/"), self.path.strip("/")
            same = (self.scheme, self.user, self.host) == (other.scheme, other.user, other.host)
            return same and (not above or f"{below}/".startswith(f"{above}/")) and ".." not in below.split("/")
        whole = other.path in ("", self.path) and (other.query is None or other.query == self.query)
        return whole and self._server == other._server and (other.table is None or other.table == self.table)

    @property
    def _server(self) -> tuple[str, str, str]:
        name, _, port = self.host.rpartition(":") if ":" in self.host else (self.host, "", "")
        host, port = self.options.get("host", name), self.options.get("port", port)
        return self.scheme, host.lower(), port or "5432"


def _check_options(scheme: str, given: list[str], name: str, *, needs_rows: bool) -> None:
    in_store = scheme in STORE_SCHEMES
    for option in given:
        if option not in OPTIONS[scheme] or given.count(option) > 1:
            problem = f"has the option {option[:40]!r}" + (" twice" if given.count(option) > 1 else "")
            known = f"Known are {', '.join(OPTIONS[scheme])}; PostgreSQL reads others from the environment"
            cure = f"{scheme}:// takes none: address and region come from the environment" if in_store else known
            raise RequestError(problem, cure, name)
    if in_store:
        return
    rows = [option for option in given if option in _ROWS]
    if len(rows) != 1 and (needs_rows or rows):
        cure = "End it with ?table=NAME, or write the SQL as `query` beside it, and not both"
        raise RequestError(f"names {'a table and a query' if rows else 'no table'}", cure, name)


def is_url(place: object) -> TypeGuard[str]:
    """Return whether ``place`` is text that begins as a URL does."""
    return isinstance(place, str) and _URL.match(place.strip()) is not None


def is_object_url(place: object) -> TypeGuard[str]:
    """Return whether ``place`` is the URL of an object store."""
    return is_url(place) and place.strip().partition("://")[0].lower() in STORE_SCHEMES


def resolve_place(place: str | Path, name: str, folder: Path | None = None, *, needs_rows: bool = True) -> str:
    """Return where a table is: a URL, or an absolute path from ``folder`` (None: the working folder).

    A database's file is found from there as well.  Raises RequestError about the field ``name``.
    """
    base = (folder or Path()).absolute()
    if isinstance(place, str) and is_url(place):
        url = DataUrl.parse(place, name, needs_rows=needs_rows)
        return str(replace(url, path=str(base / expand_path(url.path, name))) if url.is_file else url)
    return str(base / expand_path(place, name))

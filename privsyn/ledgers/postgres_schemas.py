"""Where a PostgreSQL ledger lies: its tables are named with their schema, whatever a role's search path says.

A role may set its own search path, and may own a schema.  Names without a schema would lead to tables that this role
made there, with caps and a history of its own.
"""

from __future__ import annotations

import re

from sqlalchemy.engine import URL, Connection

from privsyn.base.database_url import LEDGER_OPTION
from privsyn.base.errors import RequestError
from privsyn.ledgers.schema import metadata

DEFAULT = "public"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

PINNED_PATH = "SET LOCAL search_path = pg_catalog"
"""For every transaction: functions and operators are PostgreSQL's own."""

_RESTORE_PATH = "SELECT set_config('search_path', reset_val, true) FROM pg_settings WHERE name = 'search_path'"
_FIRST_FOUND = "SELECT pg_catalog.to_regclass('ledger')::pg_catalog.oid"
_SCHEMA_OF = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class e ON e.relname = 'entries' AND e.relnamespace = n.oid
JOIN pg_attribute a ON a.attrelid = e.oid AND a.attname = 'prev_hash'
WHERE c.oid = %(found)s
"""
_LEDGERS_OF_OTHERS = """
SELECT n.nspname, pg_get_userbyid(c.relowner) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class e ON e.relname = 'entries' AND e.relnamespace = n.oid
JOIN pg_attribute a ON a.attrelid = e.oid AND a.attname = 'prev_hash'
WHERE c.relname = 'ledger' AND n.nspname <> %(schema)s
AND c.relowner <> (SELECT relowner FROM pg_class WHERE oid = %(own)s::regclass)
ORDER BY 1
"""
_SEARCH_PATHS = """
SELECT coalesce(r.rolname, 'every role'), substr(setting, length('search_path=') + 1)
FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) setting
WHERE setting LIKE 'search_path=%%'
AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
ORDER BY 1
"""
_SESSION = "SELECT session_user, reset_val FROM pg_settings WHERE name = 'search_path'"
_TAKEN_NAMES = """
SELECT DISTINCT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = ANY(%(names)s) AND c.relkind IN ('r', 'v', 'm', 'f', 'p') AND n.nspname <> %(schema)s
"""


def take_schema(url: URL) -> tuple[URL, str]:
    """Return the address without its option ``schema``, and the schema; RequestError for one that is no plain name."""
    named = url.query.get(LEDGER_OPTION, DEFAULT)
    if not isinstance(named, str) or not _NAME.fullmatch(named) or named.startswith("pg_"):
        raise RequestError(
            "the schema of the ledger's address is not a plain name",
            "Write one of small letters, digits and _, as in postgresql://USER@HOST/DATABASE?schema=NAME",
            "settings.ledger",
        )
    return url.difference_update_query([LEDGER_OPTION]), named


def find_schema_in_path(connection: Connection) -> str | None:
    """Return the schema of the ledger that is first in this session's own search path; None if there is none."""
    connection.exec_driver_sql(_RESTORE_PATH)
    found = connection.exec_driver_sql(_FIRST_FOUND).scalar_one()
    connection.exec_driver_sql(PINNED_PATH)
    schema = connection.exec_driver_sql(_SCHEMA_OF, {"found": found}).scalar_one_or_none()
    return None if schema is None else str(schema)


def list_shadows(connection: Connection, schema: str) -> list[str]:
    """Return, in sentences, the ledgers and tables that names without a schema would take for those of ``schema``.

    A ledger of another schema counts where another role owns it, or where some role's search path has it first.  What
    the owner has put aside does not.
    """
    own = f"{schema}.ledger"
    problems = [
        f"the role {owner} has a ledger of its own in the schema {other}: releases that were charged there are not in "
        "this one"
        for other, owner in connection.exec_driver_sql(_LEDGERS_OF_OTHERS, {"schema": schema, "own": own})
    ]
    names = {"schema": schema, "names": list(metadata.tables)}
    taken = {str(row[0]) for row in connection.exec_driver_sql(_TAKEN_NAMES, names)}
    for role, path in _list_search_paths(connection).items():
        parts = [part.strip().strip('"').replace("$user", role) for part in path.split(",")]
        before = parts[: parts.index(schema)] if schema in parts else []
        problems += [
            f"the search path of {role} has tables of the schema {name} in the place of the ledger's in {schema}"
            for name in before
            if name in taken
        ]
    return problems


def _list_search_paths(connection: Connection) -> dict[str, str]:
    """Return the search path of each role that has one set here, and of this session's."""
    found = {str(role): str(path) for role, path in connection.exec_driver_sql(_SEARCH_PATHS)}
    role, path = connection.exec_driver_sql(_SESSION).one()
    return {**found, str(role): str(path)}

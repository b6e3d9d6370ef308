"""Data dictionaries: the public facts and proposed rules that they give, and the process that reads them.

Rules follow from a dictionary's words: who is asked a question, and the value of everybody else.

Dictionaries are read in a process of their own, which has limits: a small file may unpack to any size.
A workbook is packed, XML may nest, and their readers are others' code in several languages.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from privsyn.base.errors import RequestError
from privsyn.base.registry import find_parts, load_part
from privsyn.data_contracts.columns import MAX_CODES
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rule_language import Type, parse_condition

Scalar = bool | int | float | str | dt.datetime

_TYPES: dict[str, Type] = {
    "integer": "number",
    "number": "number",
    "boolean": "truth",
    "datetime": "moment",
    "date": "moment",
}
_BELOW = re.compile(r"(?:less than|under|younger than|below)\s+(\d+)", re.IGNORECASE)
_FROM = re.compile(
    r"(\d+)\s*(?:\+|(?:years?\s+)?(?:of age\s+|old\s+)?(?:and|or)\s+(?:over|older|more|above))", re.IGNORECASE
)
_AGE = re.compile(r"(a_)?age(p|_years)?", re.IGNORECASE)
_NOT_ASKED = re.compile(r"\W*(not in universe|niu|n/a|not applicable|inapplicable|iap)\b", re.IGNORECASE)

SECONDS = 30
"""Processor time of one dictionary."""

MAX_BYTES = 100_000_000
"""Bytes of a dictionary."""

MEMORY = 2 << 30
"""Bytes of memory of the process."""

_WAIT = 4 * SECONDS
"""Seconds after which a process that waits is ended: the disk may be slow."""

_FIELD = "draft_spec.dictionary"


@dataclass
class Facts:
    """Public facts about one column; None if the dictionary does not say.

    ``labels``: labels of ``values``, in order.  ``decimals``: the number of decimals of a number.
    ``universe``: who was asked, as a condition in the language of rules or in words.
    ``unique``: whether the column identifies a row of its table.
    """

    kind: str | None = None
    type: str | None = None
    min: Scalar | None = None
    max: Scalar | None = None
    values: list[Scalar] | None = None
    labels: list[str] | None = None
    decimals: int | None = None
    nullable: bool | None = None
    unit: str = ""
    description: str = ""
    universe: str = ""
    unique: bool = False
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Dictionary:
    """The facts by column name, texts that mean null in CSV (None: not said), and rules between columns.

    ``rules``: entries for the spec's ``rules``; ``headings``: headings of a dictionary that is a table.
    """

    name: str
    columns: dict[str, Facts]
    null_values: list[str] | None = None
    rules: list[dict[str, Any]] = field(default_factory=list)
    headings: tuple[str, ...] = ()


def pick(tables: Mapping[str, Any], table: str, name: str) -> Mapping[str, Any]:
    """Return the table ``table``, or the only table."""
    chosen = tables.get(table) or (next(iter(tables.values())) if len(tables) == 1 else None)
    if not isinstance(chosen, dict):
        raise RequestError(
            f"{name} describes {len(tables)} tables, none of them called {table}",
            "Give a dictionary of this one table, or name its table like the data file",
            "draft_spec.dictionary",
        )
    return chosen


def format_value(value: Any) -> str:
    """Return the value as text; empty for None."""
    return "" if value is None else str(value).strip()


_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,14})")


def parse_whole_number(text: str) -> int | None:
    """Return a whole number of at most 15 digits without leading zeros; None for any other text."""
    return int(text) if _WHOLE.fullmatch(text) else None


def bound_of(value: Any, kind: str | None) -> Scalar | None:
    """Return a bound in the kind's type, moments as UTC without a zone; None if it is not valid."""
    if kind == "datetime" and isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value)
            return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or kind not in ("integer", "number"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if kind == "integer":
        return (value if isinstance(value, int) else int(number)) if number.is_integer() else None
    return number if math.isfinite(number) else None


def list_values(listed: Any, facts: Facts) -> list[Scalar] | None:
    """Return the distinct listed values as scalars of one type; None if there are none, or too many."""
    if not isinstance(listed, list) or len(listed) > MAX_CODES:
        return None
    if None in listed:
        facts.nullable = True
    scalars = [v for v in listed if isinstance(v, bool | int | float | str) and v == v]
    kinds = {type(v) for v in scalars}
    if len(kinds) > 1 and kinds != {int, float}:
        scalars = [str(v) for v in scalars]
    return list(dict.fromkeys(scalars)) or None


_RANGE = re.compile(r"[(\[]\s*(-?\d+(?:\.\d+)?)\s*(?:-|–|to|\.\.)\s*(-?\d+(?:\.\d+)?)\s*(?:[A-Za-z]+\s*)?[)\]]\s*$")


def parse_range(label: str) -> tuple[str, str] | None:
    """Return the two numbers of a label that ends in a range, such as ``Age in years (18-99)``."""
    match = _RANGE.search(label)
    return None if match is None else (match[1], match[2])


def make_unreadable_error(name: str, form: str) -> RequestError:
    """Return the error for a file that cannot be read as the form of its name."""
    return RequestError(
        f"{name} is not a readable {form}",
        "Check the file, or give another form of dictionary",
        "draft_spec.dictionary",
    )


class ProposedRule(NamedTuple):
    """A condition that no row should meet, its column, and the dictionary's words for it."""

    never: str
    column: str
    words: str


def propose_rules(columns: Mapping[str, Facts]) -> list[ProposedRule]:
    """Return rules by the universes of ``columns``: outside its universe, a column is "not in universe" or null.

    A universe is a condition in the language of rules, or words about a smallest age, which refer to the only integer
    column named age.  A column gets no rule if its universe cannot be read, or if it has no value for people who are
    not asked.
    """
    types = {name: kind for name, facts in columns.items() if (kind := _get_type(facts)) is not None}
    ages = [n for n, f in columns.items() if f.kind == "integer" and _AGE.fullmatch(n)]
    proposals = []
    for name, facts in columns.items():
        universe = _describe_universe(facts.universe, types, ages)
        if name in types and universe and name not in ages:
            proposals += [
                ProposedRule(rule, name, facts.universe) for rule in _propose_for_column(name, facts, universe)
            ]
    return [p for p in proposals if _is_readable(p.never, types)]


def _propose_for_column(name: str, facts: Facts, universe: str) -> Iterator[str]:
    column = f"`{name}`"
    apart = _explain_not_asked(facts)
    if apart is not None:
        yield f"not ({universe}) and {column} != {apart!r}"
        yield f"({universe}) and {column} == {apart!r}"
    elif facts.nullable:
        yield f"not ({universe}) and {column} is not null"


def _explain_not_asked(facts: Facts) -> str | int | float | None:
    """Return the listed value for people who are not asked; None if there is none."""
    labels = facts.labels or [""] * len(facts.values or ())
    for value, label in zip(facts.values or (), labels, strict=False):
        if isinstance(value, str | int | float) and (_NOT_ASKED.match(str(value)) or _NOT_ASKED.match(label)):
            return value
    return None


def _describe_universe(words: str, types: Mapping[str, Type], ages: list[str]) -> str:
    """Return a universe as a condition; empty if it cannot be read."""
    if words and _is_readable(words, types):
        return words
    limit = _BELOW.search(words) or _FROM.search(words)
    return f"`{ages[0]}` >= {limit[1]}" if limit is not None and len(ages) == 1 else ""


def _is_readable(condition: str, types: Mapping[str, Type]) -> bool:
    try:
        return bool(parse_condition(condition, types).columns)
    except FieldError:
        return False


def _get_type(facts: Facts) -> Type | None:
    if facts.kind == "categorical":
        return None if not facts.values else "text" if isinstance(facts.values[0], str) else "number"
    return _TYPES.get(facts.kind or "")


def read_dictionary(path: Path, table: str) -> Dictionary:
    """Read the dictionary ``path``; ``table``, the data's file name without ending, picks one of several.

    Raises RequestError if the file is unreadable, has an unknown form, or has a form whose package is not installed.
    Raises RequestError also if reading the file would take more than SECONDS of processor time or MEMORY.
    """
    package_folder = str(Path(__file__).parents[2])
    try:
        done = subprocess.run(  # noqa: S603 - this module, with this interpreter
            [sys.executable, "-P", "-m", __name__, str(path), table, str(SECONDS), str(MEMORY)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([package_folder, *filter(None, sys.path)]),
                "OPENBLAS_NUM_THREADS": "1",  # each thread reserves memory
            },
            timeout=_WAIT,
            check=True,
        )
    except (subprocess.SubprocessError, ValueError):  # a path may hold a character that no argument can
        raise RequestError(
            f"{path.name} cannot be read within {SECONDS} seconds of work and {MEMORY >> 30} GiB of memory",
            "Give a smaller dictionary, or another form of it",
            _FIELD,
        ) from None
    except OSError:
        raise RequestError("the process that reads dictionaries cannot start", "Try again", _FIELD) from None
    answer = json.loads(done.stdout)
    if "problem" in answer:
        raise RequestError(answer["problem"], answer["cure"], answer["field"])
    columns = {name: Facts(**{k: _restore(v) for k, v in facts.items()}) for name, facts in answer["columns"].items()}
    return Dictionary(**{**answer, "columns": columns, "headings": tuple(answer["headings"])})


def _keep(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return {"moment": value.isoformat()}
    raise TypeError(type(value).__name__)


def _restore(value: Any) -> Any:
    if isinstance(value, list):
        return [_restore(inner) for inner in value]
    return dt.datetime.fromisoformat(value["moment"]) if isinstance(value, dict) else value


def _set_limits(seconds: int, memory: int) -> None:
    """Limit the processor time and the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for kind, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (lower, lower))


def parse_dictionary(path: Path, table: str) -> Dictionary:
    """Return the dictionary, read in this process and without limits; arguments and errors as above.

    The registry's group ``codebooks`` has a reader for the ending of the file's name; any other ending is JSON.
    """
    _check_file(path)
    ending = path.suffix.lower()
    reader = load_part("codebooks", ending if ending in find_parts("codebooks") else ".json", _FIELD)
    dictionary: Dictionary = reader(path, table)
    return dictionary


def _check_file(path: Path) -> None:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise RequestError(f"{path} is not a regular file", "Save the dictionary in a file", _FIELD)
        if path.stat().st_size > MAX_BYTES:
            raise RequestError(f"{path} is larger than {MAX_BYTES // 10**6} MB", "Check the path", _FIELD)
    except FileNotFoundError:
        raise RequestError(f"there is no file {path}", "Check the path", _FIELD) from None
    except (OSError, ValueError):
        raise RequestError(f"{path} cannot be read", "Check the path and its permissions", _FIELD) from None


def _main() -> None:
    """Print the dictionary as JSON; whatever else writes to the standard output meanwhile is not heard."""
    path, table, seconds, memory = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _set_limits(int(seconds), int(memory))
    try:
        answer = asdict(parse_dictionary(Path(path), table))
    except RequestError as error:
        answer = {"problem": error.problem, "cure": error.cure, "field": error.field}
    with answers:
        answers.write(json.dumps(answer, default=_keep))


if __name__ == "__main__":
    _main()

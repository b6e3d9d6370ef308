"""Data dictionaries are read in a process of their own, which has limits: a small file may unpack to any size.

A workbook is packed, XML may nest, and their readers are others' code in several languages.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsyn.base.errors import RequestError
from privsyn.base.registry import find_parts, load_part

if TYPE_CHECKING:
    from privsyn.specs.facts import Dictionary

SECONDS = 30
"""Processor time of one dictionary."""

MAX_BYTES = 100_000_000
"""Bytes of a dictionary."""

MEMORY = 2 << 30
"""Bytes of memory of the process."""

_WAIT = 4 * SECONDS
"""Seconds after which a process that waits is ended: the disk may be slow."""

_FIELD = "draft_spec.dictionary"


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
    return _decode(answer)


def _decode(answer: dict[str, Any]) -> Dictionary:
    from privsyn.specs.facts import Dictionary, Facts

    columns = {name: Facts(**{k: _restore(v) for k, v in facts.items()}) for name, facts in answer["columns"].items()}
    return Dictionary(**{**answer, "columns": columns, "headings": tuple(answer["headings"])})


def _keep(value: Any) -> Any:
    """Return a moment as JSON has it."""
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
    """Raise RequestError for what is no regular file of a reasonable size."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise RequestError(f"{path} is not a regular file", "Save the dictionary in a file", _FIELD)
        if path.stat().st_size > MAX_BYTES:
            raise RequestError(f"{path} is larger than {MAX_BYTES // 10**6} MB", "Check the path", _FIELD)
    except FileNotFoundError:
        raise RequestError(f"there is no file {path}", "Check the path", _FIELD) from None
    except (OSError, ValueError):
        raise RequestError(f"{path} cannot be read", "Check the path and its permissions", _FIELD) from None


def _answer(path: str, table: str) -> dict[str, Any]:
    try:
        return asdict(parse_dictionary(Path(path), table))
    except RequestError as error:
        return {"problem": error.problem, "cure": error.cure, "field": error.field}


def _main() -> None:
    """Print the dictionary as JSON; whatever else writes to the standard output meanwhile is not heard."""
    path, table, seconds, memory = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _set_limits(int(seconds), int(memory))
    with answers:
        answers.write(json.dumps(_answer(path, table), default=_keep))


if __name__ == "__main__":
    _main()

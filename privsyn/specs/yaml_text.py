"""The values and comments of a draft as text of YAML 1.2."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Any

from privsyn.specs.facts import Scalar

TODO = "TODO"

_PLAIN = re.compile(r"[^\W\d_][\w-]*( [\w-]+)*")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "todo"}
_WIDTH = 100


def format_flow(value: Any) -> str:
    """Return a value on one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{format_scalar(str(k))}: {format_flow(v)}" for k, v in value.items()) + "}"
    return f"[{', '.join(map(format_flow, value))}]" if isinstance(value, list | tuple) else format_scalar(value)


def format_scalar(value: Scalar) -> str:
    """Return the value as a YAML 1.2 scalar on one line that loads back as the same value and type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else TODO
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat(sep=" ")
    if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED and value.isprintable():
        return value
    return '"' + "".join(_escape(c) for c in value) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    code = ord(char)
    if char.isprintable() and code < 0x10000:
        return char
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_flow_list(values: list[Any], indent: str) -> str:
    """Return a flow list, on lines of about 100 characters."""
    lines, line = [], ""
    if not values:
        return "[]"
    for item in (format_scalar(v) for v in values):
        if line and len(indent) + len(line) + len(item) > _WIDTH:
            lines.append(line.rstrip())
            line = ""
        line += f"{item}, "
    lines.append(line.removesuffix(", "))
    return f"[{lines[0]}]" if len(lines) == 1 else "[\n" + "\n".join(indent + entry for entry in lines) + f"\n{indent}]"


def format_comment(text: str) -> str:
    """Return one line without characters that YAML refuses."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))[:200]

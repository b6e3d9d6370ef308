"""Values as text of YAML, which loads back."""

from __future__ import annotations

import pytest

from privsyn.specs.draft import format_scalar
from privsyn.specs.yaml_file import parse_yaml

AWKWARD = [
    "plain",
    "no",
    "NULL",
    "TODO",
    "12",
    "1e5",
    "0x1F",
    "2010-01-01",
    "a: b",
    "a #b",
    "'q'",
    '"q"',
    "\\",
    "-",
    "? a",
    "[x]",
    "*a",
    "!t",
    "%p",
    "@x",
    "😀",
    "a\nb",
    " lead",
    "trail ",
    "\u2028",
    "\x85",
    "~",
    "<<",
    "=",
    "a,b",
    "|",
    "x" * 1500,
]


@pytest.mark.parametrize("value", [*AWKWARD, 0, -5, 2**60, True, False, 1e-9, 1e16, 1e300, -0.5, 12345.678])
def test_scalars_load_back(value: object) -> None:
    loaded = parse_yaml(f"x: [{format_scalar(value)}]", "x").content["x"][0]  # type: ignore[arg-type]
    assert loaded == value and type(loaded) is type(value)

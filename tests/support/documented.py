"""The Python and the specs that pages of the documentation show."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.places import ROOT


def python_of(page: str) -> str:
    """Return the page's Python blocks, one after the other, on the lines where they stand."""
    inside, kept = False, []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        inside = line == "```python" or (inside and line != "```")
        kept.append(line if inside and line != "```python" else "")
    return "\n".join(kept)


def read_example(page: str, marker: str = "example", number: int = 1) -> dict[str, Any]:
    """Return the fields of the spec below the ``number``-th marker of that name on a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text.split(f"<!-- {marker} -->\n```yaml\n")[number].split("```")[0])
    return found

"""The Python that pages of the documentation show."""

from __future__ import annotations

from tests.support.places import ROOT


def python_of(page: str) -> str:
    """Return the page's Python blocks, one after the other, on the lines where they stand."""
    inside, kept = False, []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        inside = line == "```python" or (inside and line != "```")
        kept.append(line if inside and line != "```python" else "")
    return "\n".join(kept)

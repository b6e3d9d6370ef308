"""The part of a page that a benchmark writes, between two comments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_between(page: Path, markers: tuple[str, str], lines: Sequence[str]) -> None:
    """Replace what stands between the markers of the page, each of which stands there once, by the lines."""
    before, rest = page.read_text(encoding="utf-8").split(markers[0])
    after = rest.split(markers[1])[1]
    page.write_text(f"{before}{markers[0]}\n" + "\n".join(lines) + f"\n{markers[1]}{after}", encoding="utf-8")

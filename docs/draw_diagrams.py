"""Draw every Mermaid block of the documentation as an SVG, named by its text; `make diagrams`.

Needs `mmdc` on the path (npm's @mermaid-js/mermaid-cli) and the browser that it drives; MMDC_OPTIONS are added to it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from pathlib import Path

from hooks import DRAWING

DOCS = Path(__file__).parent
DRAWN = DOCS / "img" / "mermaid"


def draw_all() -> None:
    """Draw what is not drawn yet, and remove the drawings that no page has any more."""
    wanted = set()
    for page in sorted(DOCS.rglob("*.md")):
        for text in DRAWING.findall(page.read_text(encoding="utf-8")):
            target = DRAWN / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.svg"
            wanted.add(target)
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                options = shlex.split(os.environ.get("MMDC_OPTIONS", ""))
                command = [
                    "mmdc",
                    "--input",
                    "-",
                    "--output",
                    str(target),
                    "--backgroundColor",
                    "transparent",
                    *options,
                ]
                subprocess.run(command, input=text, text=True, check=True)  # noqa: S603
    for other in set(DRAWN.glob("*.svg")) - wanted:
        other.unlink()


if __name__ == "__main__":
    draw_all()

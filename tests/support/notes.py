"""Sections of notes, each written by itself.

Belongs here: what tests ask the templates of notes.  Does not belong here: assertions.
"""

from __future__ import annotations

from typing import Any

from privsyn.publish.markdown import TEMPLATES


def write_section(name: str, *facts: Any) -> str:
    """The section ``name`` of ``parts.md.j2``."""
    return str(getattr(TEMPLATES.get_template("parts.md.j2").module, name)(*facts))

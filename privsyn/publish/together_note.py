"""What the note of a release says of columns that move together."""

from __future__ import annotations

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.publish.markdown import escape_text


def write_together_note(spec: ReleaseSpec) -> str:
    """Markdown: the groups, in the spec's order, and what they say of differences; empty without groups."""
    if not spec.together:
        return ""
    groups = "\n".join(f"- {', '.join(map(escape_text, group))}" for group in spec.together)
    return (
        "## Columns that move together\n\n"
        "It is a public statement that the values of these columns lie close together in every row. In the synthetic "
        "table they lie at one place of their bins, and what noise put more than a bin apart was brought together. How "
        "far apart they are inside bins was not measured.\n\n"
        f"{groups}"
    )

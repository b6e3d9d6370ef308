"""What the note of a release says of its targets."""

from __future__ import annotations

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.publish.markdown import escape_text


def write_targets_note(spec: ReleaseSpec) -> str:
    """Markdown: the columns and sets of columns that counted more; empty without targets."""
    lines = []
    if spec.focus is not None:
        names = ", ".join(map(escape_text, spec.focus.columns))
        lines.append(f"- relations with {names}: {spec.focus.weight:g} times")
    for marginal in spec.workload:
        names = ", ".join(map(escape_text, marginal.columns))
        lines.append(f"- relations between {names}: {marginal.weight:g} times")
    if not lines:
        return ""
    told = (
        "The request, which is public, wanted some relations to be kept better than others: an error there counted "
        "more where relations were chosen and the privacy budget was shared. It changes nothing of what is promised."
    )
    return "\n".join(["## Targets", "", told, "", *lines])

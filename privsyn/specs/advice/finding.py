"""What a search for relations finds: a relation, a sentence on it and a part of a spec.  PRIVATE, all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from privsyn.specs.draft import TODO, format_flow

RULE = "rules"
COMPARE = "compare"


@dataclass(frozen=True)
class Finding:
    """PRIVATE: a relation that the rows show.

    ``kind``: dependency, order, implication, arithmetic, band, one_of or compare; ``columns``: those that it is about;
    ``sentence``: in words, without its full stop; ``section``: of the spec that says it; ``content``: the entry of that
    section, JSON-ready, in which ``TODO`` must be filled.
    """

    kind: str
    columns: tuple[str, ...]
    sentence: str = field(repr=False)
    section: str = field(repr=False)
    content: Any = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the finding, JSON-ready; PRIVATE."""
        return {"kind": self.kind, "columns": list(self.columns), "sentence": self.sentence, "yaml": self.as_yaml()}

    def as_yaml(self) -> str:
        """Return the entry as it stands in the list ``section`` of a spec, to be pasted under it."""
        if not isinstance(self.content, Mapping):
            return f"  - {format_flow(self.content)}"
        lines = [f"{name}: {format_flow(value)}" for name, value in self.content.items()]
        lines = [line.replace(f'"{TODO}"', TODO) for line in lines]
        return "\n".join([f"  - {lines[0]}", *(f"    {line}" for line in lines[1:])])


def make_rule(kind: str, columns: tuple[str, ...], sentence: str, **content: Any) -> Finding:
    """Return a finding that a rule would say, with a source to be named."""
    return Finding(kind, columns, sentence, RULE, {**content, "source": TODO})

"""A relation found in private rows, with a sentence and an entry for the spec.  All of it is PRIVATE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from privsyn.specs.draft import TODO, format_flow

RULE = "rules"
COMPARE = "compare"


@dataclass(frozen=True)
class Finding:
    """PRIVATE: a relation in the rows.

    ``kind``: dependency, order, implication, arithmetic, band, one_of or compare; ``columns``: its columns;
    ``sentence``: without a full stop; ``section``: section of the spec for the relation; ``content``: entry for that
    section, JSON-ready, with ``TODO`` to fill in.
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
        """Return the entry as YAML, to paste into the list ``section`` of a spec."""
        if not isinstance(self.content, Mapping):
            return f"  - {format_flow(self.content)}"
        lines = [f"{name}: {format_flow(value)}" for name, value in self.content.items()]
        lines = [line.replace(f'"{TODO}"', TODO) for line in lines]
        return "\n".join([f"  - {lines[0]}", *(f"    {line}" for line in lines[1:])])


def make_rule(kind: str, columns: tuple[str, ...], sentence: str, **content: Any) -> Finding:
    """Return a finding with the rule for it, whose source is a TODO."""
    return Finding(kind, columns, sentence, RULE, {**content, "source": TODO})

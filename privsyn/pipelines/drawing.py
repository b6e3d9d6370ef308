"""The wiring as a drawing: Mermaid text made from the declared steps, so that it cannot be out of date.

``python -m privsyn.pipelines.drawing`` prints what stands in docs/architecture.md; a test compares the two.
"""

from __future__ import annotations

from privsyn.data_contracts.artifacts import StepKind
from privsyn.engine.step import Step
from privsyn.pipelines.one_shot import STEPS

COLORS = {
    StepKind.TRANSFORM: "fill:#f9d9d9,stroke:#b03a3a,color:#222",
    StepKind.RELEASE: "fill:#fdebc8,stroke:#b9770e,color:#222",
    StepKind.POSTPROCESS: "fill:#d8eedd,stroke:#2e7d4f,color:#222",
}
"""Private rows stay red; amber is where budget is spent; green is free."""


def draw_mermaid() -> str:
    """Return PrivSyn as a Mermaid flowchart: one node a step, coloured by its kind, and one edge a table it reads."""
    lines = ["flowchart TD"]
    lines += [f'    {step.name}["{step.title}"]:::{step.kind}' for step in STEPS]
    lines += [edge for step in STEPS for edge in _list_edges(step)]
    lines += [f"    classDef {kind} {style}" for kind, style in COLORS.items()]
    return "\n".join(lines)


def _list_edges(step: Step) -> list[str]:
    """Return one edge a producer, in declared order, with the tables' names on it."""
    tables: dict[str, list[str]] = {}
    for name in step.inputs:
        producer, table = name.split(".")
        tables.setdefault(producer, []).append(table.replace("_", " "))
    return [f'    {producer} -- "{", ".join(names)}" --> {step.name}' for producer, names in tables.items()]


if __name__ == "__main__":
    print(draw_mermaid())

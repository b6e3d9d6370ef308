"""The declared steps for the docs: a drawing, a table, and the list of stages at the top of ``flows/release.py``.

``python -m privsyn.pipelines.drawing``, run in a checkout, writes all three; a test checks that they are current.
"""

from __future__ import annotations

import textwrap
from fractions import Fraction
from pathlib import Path

import networkx as nx

from privsyn.data_contracts.artifacts import StepKind
from privsyn.engine.step import connect, fund, release_steps
from privsyn.pipelines import panel
from privsyn.pipelines.one_shot import build_looks
from privsyn.pipelines.panel import MAKE_WITHOUT_ROWS
from privsyn.pipelines.rung_steps import follow_cuts
from privsyn.pipelines.synthesis_steps import ROW_STEPS

_DECLARED = (
    *(*build_looks(), *panel.LINKED_LOOKS, *ROW_STEPS[:-1]),
    *(panel.build_linking_step(), MAKE_WITHOUT_ROWS, ROW_STEPS[-1], panel.DECODE),
)
_WIRED = follow_cuts(connect(fund(_DECLARED, {look.name: Fraction(1) for look in release_steps(_DECLARED)})))

STEPS = tuple({step.name: step for step in reversed(_DECLARED)}.values())[::-1]
"""Every step of any PrivSyn release, including linked rows."""

COLORS = {
    StepKind.TRANSFORM: "fill:#f9d9d9,stroke:#b03a3a,color:#222",
    StepKind.RELEASE: "fill:#fdebc8,stroke:#b9770e,color:#222",
    StepKind.POSTPROCESS: "fill:#d8eedd,stroke:#2e7d4f,color:#222",
}
"""Red: private rows; amber: budget is spent; green: post-processing, free."""

SOME_RELEASES = "classDef some stroke-dasharray:5 4"
PUBLISH = ("Publish", "", "the released folder is written, checked and entered in the ledger")


def draw_mermaid() -> str:
    """Return the steps as a Mermaid flowchart, coloured by their kind.

    Steps of some releases only are dashed.  Arrows implied by other arrows are left out.
    """
    names = [step.name for step in STEPS]
    order: nx.DiGraph = nx.DiGraph((producer, step.name) for step in _WIRED for producer in step.producers)
    arrows = sorted(nx.transitive_reduction(order).edges, key=lambda arrow: [names.index(name) for name in arrow])
    lines = ["flowchart TD"]
    lines += [f'    {step.name}["{step.title}"]:::{step.kind}' for step in STEPS]
    lines += [f"    {a} --> {b}" for a, b in arrows]
    lines += [f"    classDef {kind} {style}" for kind, style in COLORS.items()]
    lines += [f"    {SOME_RELEASES}", f"    class {','.join(step.name for step in STEPS if step.when)} some"]
    return "\n".join(lines)


def list_stages() -> str:
    """Return one indented line per step: its title, kind and description."""
    rows = [(s.title, str(s.kind), f"{s.about} [{s.when}]" if s.when else s.about) for s in STEPS]
    width = max(len(title) for title, *_ in rows) + 6
    begins = [(f"    {title:{width - 4}}{kind:14}", about) for title, kind, about in (*rows, PUBLISH)]
    return "\n".join(textwrap.fill(begin + about, 120, subsequent_indent=" " * (width + 16)) for begin, about in begins)


def tabulate_steps() -> str:
    """Return the steps as a Markdown table."""
    lines = ["| step | kind | what | which releases | in the paper |", "|---|---|---|---|---|"]
    for step in STEPS:
        kind = f"**{step.kind}**" if step.kind is StepKind.RELEASE else str(step.kind)
        title = step.title if step.title.startswith("InDif") else step.title.lower()
        lines.append(f"| {title} | {kind} | {step.about} | {step.when or 'all'} | {step.paper} |")
    return "\n".join(lines)


PAGES = {
    "docs/architecture.md": ("<!-- wiring -->\n```mermaid\n", draw_mermaid, "\n```\n<!-- /wiring -->"),
    "docs/how-it-works.md": ("<!-- steps -->\n", tabulate_steps, "\n<!-- /steps -->"),
    "flows/release.py": ("In brackets: the\nreleases that have a step.\n\n", list_stages, "\n\nOther mechanisms"),
}
"""File -> marker before the generated text, the function that generates it, marker after it."""


def build_pages(root: Path) -> dict[Path, str]:
    """Return path -> up-to-date text of each page.  ``root``: the checkout's folder."""
    pages = {}
    for name, (begin, make, end) in PAGES.items():
        content = (root / name).read_text(encoding="utf-8")
        before, after = content.split(begin)[0], content.split(begin)[1].split(end, 1)[1]
        pages[root / name] = f"{before}{begin}{make()}{end}{after}"
    return pages


if __name__ == "__main__":
    for page, text in build_pages(Path.cwd()).items():
        page.write_text(text, encoding="utf-8")
        print(page.name)

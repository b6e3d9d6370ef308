"""The drawing, the table and the first screen of the flow show the steps that run."""

from __future__ import annotations

import networkx as nx
import pytest

from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.pipelines.drawing import STEPS, build_pages, draw_mermaid, list_stages, tabulate_steps
from privsyn.pipelines.registry import build_steps
from privsyn.specs.spec_file import load_spec
from tests.support.panels import make_panel_spec
from tests.support.places import ROOT
from tests.support.specs import make_spec

REQUESTS = {
    "examples/gss.yaml": Request(load_spec(ROOT / "examples" / "gss.yaml")),
    "columns with bins": Request(make_spec()),
    "linked rows": Request(make_panel_spec()),
}


def test_the_pages_are_made_from_the_declarations() -> None:
    for page, text in build_pages(ROOT).items():
        assert page.read_text(encoding="utf-8") == text, "python -m privsyn.pipelines.drawing"


@pytest.fixture(params=REQUESTS.values(), ids=REQUESTS)
def steps(request: pytest.FixtureRequest) -> tuple[Step, ...]:
    return build_steps(request.param)


def test_every_step_that_runs_is_shown_and_what_all_releases_have_runs(steps: tuple[Step, ...]) -> None:
    run, shown = {step.name: step.title for step in steps}, {step.name: step.title for step in STEPS}
    assert run.items() <= shown.items()
    assert {step.name for step in STEPS if not step.when} <= run.keys()
    text, drawing, table = list_stages(), draw_mermaid(), tabulate_steps()
    for name, title in run.items():
        assert f"    {title} " in text and f'{name}["{title}"]' in drawing and f"| {title.lower()} |" in table.lower()


def test_steps_run_in_the_order_of_the_list(steps: tuple[Step, ...]) -> None:
    order = [step.name for step in STEPS]
    assert [step.name for step in steps] == sorted((step.name for step in steps), key=order.index)


def test_every_table_that_is_read_is_an_arrow_or_follows_from_arrows(steps: tuple[Step, ...]) -> None:
    arrows = [line.split() for line in draw_mermaid().splitlines() if "-->" in line]
    drawn: nx.DiGraph = nx.DiGraph((a, b) for a, _, b in arrows)
    for step in steps:
        assert all(nx.has_path(drawn, producer, step.name) for producer in step.producers)


def test_a_step_that_some_releases_lack_says_which_have_it() -> None:
    without = {step.name for step in build_steps(REQUESTS["columns with bins"])}
    assert all(step.when for step in STEPS if step.name not in without)
    assert all(step.about for step in STEPS)

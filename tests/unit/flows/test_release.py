"""The stages that flows/release.py shows first are those that run, by the names that the UI shows."""

from __future__ import annotations

import re

import privsyn.flows.release as flow
from privsyn.engine.request import Request
from privsyn.pipelines.registry import build_steps
from tests.support.specs import make_spec


def test_the_module_shows_the_stages_of_the_paper_in_the_order_in_which_they_run() -> None:
    shown = re.findall(r"^ {4}(\S.*?) {2,}(transform|release|postprocess) {2,}\S", flow.__doc__ or "", re.MULTILINE)
    steps = build_steps(Request(make_spec(mechanism="privsyn")))
    assert [f"{title} ({kind})" for title, kind in shown] == [step.label for step in steps]

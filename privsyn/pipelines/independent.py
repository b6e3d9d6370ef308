"""Independent columns: one-ways with the whole budget, and rows drawn column by column."""

from __future__ import annotations

from dataclasses import replace

from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN, ENCODE, ONE_WAYS
from privsyn.pipelines.rung_steps import build_first_look
from privsyn.pipelines.synthesis_steps import build_row_steps

COUNT_COLUMNS = replace(
    ONE_WAYS,
    limit="Each column is made on its own: the rows show no relation between columns, even where there is one.",
)


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps: one look, at the one-ways, then rows that keep no relation between columns."""
    return ENCODE, *build_first_look(), COUNT_COLUMNS, COMPRESS_DOMAIN, *build_row_steps(request)

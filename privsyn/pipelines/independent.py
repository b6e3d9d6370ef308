"""Independent columns: the one-ways with the whole budget, and rows drawn column by column."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, Step
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN
from privsyn.pipelines.full_cell_steps import build_one_way_steps
from privsyn.pipelines.synthesis_steps import build_row_steps


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return one look at the private rows, at every column on its own; no relation between columns is kept."""
    *before, one_ways = build_one_way_steps(request, Fraction(1), "cells")
    assert isinstance(one_ways, ReleaseStep)  # noqa: S101 - the last of these steps is the look
    limit = "Each column is made on its own: the rows show no relation between columns, whatever is so in reality."
    return (*before, replace(one_ways, limit=limit), COMPRESS_DOMAIN, *build_row_steps(request))

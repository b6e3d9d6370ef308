"""Independent columns: the one-ways with the whole budget, and rows drawn column by column."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.pipelines.common_steps import COMPRESS_DOMAIN, ENCODE, build_one_way_step
from privsyn.pipelines.synthesis_steps import build_row_steps


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return one look at the private rows, at every column on its own; no relation between columns is kept."""
    one_ways = replace(
        build_one_way_step(Fraction(1), "cells"),
        limit="Each column is made on its own: the rows show no relation between columns, whatever is so in reality.",
    )
    return (ENCODE, one_ways, COMPRESS_DOMAIN, *build_row_steps([]))

"""The quality figures: what is released of an evaluation, under a budget of its own."""

from __future__ import annotations

from typing import Literal

from privsyn.data_contracts.result_model import ResultModel


class QualityFigure(ResultModel):
    """One noisy figure: ``value`` = ``noisy_sum`` / (``compared`` x rows of the synthetic table).

    ``noise_sd``: standard deviation of the noise in ``value``, ``sigma`` that in ``noisy_sum``.  The value is not
    clamped: noise may take it below 0.
    """

    name: str
    title: str
    meaning: str
    value: float
    noise_sd: float
    compared: int
    noisy_sum: int
    sigma: float


class QualityReport(ResultModel):
    """The figures of one synthetic table against its private one.  It is released: there is noise in every figure."""

    schema_version: Literal[1] = 1
    run: str
    release: str
    dataset: str
    epsilon: float
    delta: float
    synthetic_rows: int
    synthetic_sha256: str
    figures: tuple[QualityFigure, ...]

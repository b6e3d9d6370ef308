"""The tight audit as two tables and a picture: every look, whole releases, and their ROC curves."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from audit.planted_faults import BY_NAME
from audit.referee_cases import IN_MEMORY
from audit.referee_table import name_look
from audit.table import choose_columns, write_table
from audit.tightness import (
    MOST_DRAWS,
    Difference,
    Effort,
    Ratios,
    Release,
    choose_runs,
    draw_evidence,
    find_worst_neighbours,
    gather_ratios,
    is_fault,
    prove_mu,
)
from privsyn.base.pictures import write_picture
from privsyn.tasks.privacy.noise import OpenDPNoise

WHOLE = (
    "privsyn, persons of 2",
    "mst, persons of 2",
    "aim, persons of 2",
    "adaptive, persons of 2",
    "privbayes, persons of 2",
    "itemsets, persons of 2 transactions",
    "privsyn, a panel, 4 rows a person, ties in the order",
    "privsyn, households with roles",
    "privsyn, households and members",
    "privsyn, a tree three deep",
)
"""Cases of which whole releases run, again and again."""

FAULT = "FAULT"
TEST, GAUSSIAN, ZCDP = "the test", "Gaussian mechanism of the price", "most that zCDP of the price allows"
RUNS = 50
PAGE_LOSS = 0.012
"""How far below mu the bounds of the page may lie, as a share of mu, where draws allow."""

LOOK_HEADER = ("look", "case", "mu of its price", "attained", "of its sensitivity", "draws", "at least", "verdict")
WHOLE_HEADER = (
    "release",
    "mu of its price",
    "neighbours tried",
    "attained",
    "draws for recorded questions",
    "at least",
    "whole releases",
    "at least",
    "verdict",
)

LOOK_COLUMNS, WHOLE_COLUMNS = (0, 3, 6), (0, 3, 5)
"""Columns of the two tables that the page shows."""


@dataclass(frozen=True)
class Found:
    """What the search found of one case: ``looks`` and the largest ``shares`` of a sensitivity by the look's name."""

    case: str
    mu: float
    attained: float
    tried: int
    looks: dict[str, Difference]
    shares: dict[str, float]
    replayed: Ratios | None
    evidence: Ratios | None
    seconds: float

    def cells(self) -> tuple[str, ...]:
        """Return the line of a whole release, in the order of WHOLE_HEADER."""
        if self.evidence is None or self.replayed is None:
            raise ValueError(f"{self.case} was not released whole")
        bounds = []
        for ratios in (self.replayed, self.evidence):
            bounds += [f"2 x {len(ratios[0]):,}", f"{prove_mu(ratios) / self.mu:.1%}"]
        faults = [_judge(ratios, self.mu) for ratios in (self.replayed, self.evidence)]
        verdict = FAULT if FAULT in faults else faults[0]
        share = f"{self.attained / self.mu:.1%}"
        return (self.case, f"{self.mu:.2f}", f"{self.tried:,}", share, *bounds, verdict)


def _judge(ratios: Ratios, mu: float) -> str:
    return FAULT if is_fault(ratios, mu) else "within its price"


def search_case(name: str, effort: Effort, runs: int) -> Found:
    """Return what a search finds of one case, and evidence of whole releases of the worst pair, in its own process."""
    begin, case = time.monotonic(), BY_NAME[name]
    search = find_worst_neighbours(case, effort)
    looks, shares = dict[str, Difference](), dict[str, float]()
    for step, difference in search.looks.items():
        look = name_look(step)
        if look not in looks or difference.attained / difference.mu > looks[look].attained / looks[look].mu:
            looks[look] = difference
        shares[look] = max(shares.get(look, 0.0), search.shares[step])
    replayed = draw_evidence(search.whole, OpenDPNoise(), choose_runs(search.whole, PAGE_LOSS)) if runs else None
    evidence = gather_ratios(Release(case, OpenDPNoise()), search.pair, runs) if runs else None
    seconds = time.monotonic() - begin
    return Found(name, search.mu, search.attained, search.tried, looks, shares, replayed, evidence, seconds)


def measure_look(
    look: str, case: str, difference: Difference, share: float, draws: int
) -> tuple[tuple[str, ...], bool]:
    """Return the line of one look in the order of LOOK_HEADER, and whether it is a fault."""
    runs = choose_runs(difference, PAGE_LOSS, draws)
    evidence = draw_evidence(difference, OpenDPNoise(), runs)
    verdict, least = _judge(evidence, difference.mu), prove_mu(evidence)
    line = (
        look.replace("_", " "),
        case,
        f"{difference.mu:.2f}",
        f"{difference.attained / difference.mu:.1%}",
        f"{share:.0%}",
        f"2 x {runs:,}",
        f"{least / difference.mu:.1%}",
        verdict,
    )
    return line, verdict == FAULT


def choose_looks(found: Sequence[Found]) -> list[tuple[str, str, Difference, float]]:
    """Return for each look the case in which two tables differ by most of its price, of equal ones the dearest."""
    best: dict[str, tuple[str, str, Difference, float]] = {}
    for one in found:
        for look, difference in one.looks.items():
            line = (look, one.case, difference, one.shares[look])
            if look not in best or _rank(difference) > _rank(best[look][2]):
                best[look] = line
    return list(best.values())


def _rank(difference: Difference) -> tuple[float, float]:
    return round(difference.attained / difference.mu, 3), difference.mu


def draw_roc(found: Sequence[Found], title: str) -> dict[str, Any]:
    """Return panels of true against false positives: of the test on all noisy tables, and of what the price allows."""
    panels = [_draw_panel(one) for one in found if one.replayed is not None]
    top = alt.Title(title, anchor="start").to_dict()
    return {"$schema": alt.SCHEMA_URL, "title": top, "concat": panels, "columns": 4}


def _draw_panel(one: Found) -> dict[str, Any]:
    if one.replayed is None:
        raise ValueError(f"{one.case} was not released whole")
    without, with_person = (np.sort(side) for side in one.replayed)
    alphas = np.linspace(0.002, 0.998, 80)
    thresholds = np.quantile(without, 1 - alphas)
    curves = {
        TEST: 1 - np.searchsorted(with_person, thresholds, side="left") / len(with_person),
        GAUSSIAN: stats.norm.cdf(stats.norm.ppf(alphas) + one.mu),
        ZCDP: bound_power(one.mu**2 / 2, alphas),
    }
    values = [
        {"false": float(a), "true": float(value), "curve": curve}
        for curve, power in curves.items()
        for a, value in zip(alphas, power, strict=True)
    ]
    scale = alt.Scale(domain=list(curves), range=["#0072B2", "#000000", "#999999"])
    legend = alt.Legend(orient="bottom", labelLimit=400)
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_line(strokeWidth=1.5)
        .encode(
            alt.X("false:Q", title="false positives"),
            alt.Y("true:Q", title="true positives"),
            alt.Color("curve:N", scale=scale, title=None, legend=legend),
        )
        .properties(width=170, height=170, title=alt.Title(one.case, fontSize=10, limit=190))
    )
    return {k: v for k, v in chart.to_dict().items() if k not in ("$schema", "config")}


def bound_power(rho: float, alphas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest true positive rate that rho-zCDP allows at each false positive rate.

    From its (epsilon, delta), epsilon from 0 to 60, by the conversion of Canonne, Kamath and Steinke (2020),
    Proposition 12; a test of power p at rate a has p <= e^epsilon a + delta and 1 - a <= e^epsilon (1 - p) + delta.
    """
    orders, epsilons = 1 + np.logspace(-3, 3, 400)[:, None], np.linspace(0, 60, 1_201)
    logs = (orders - 1) * (orders * rho - epsilons) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
    deltas = np.exp(np.minimum(logs.min(axis=0), 0.0))
    above = np.exp(epsilons)[:, None] * alphas + deltas[:, None]
    below = 1 - (1 - alphas - deltas[:, None]) * np.exp(-epsilons)[:, None]
    return np.asarray(np.minimum(np.minimum(above, below).min(axis=0), 1.0))


def main(arguments: Sequence[str]) -> int:
    """Print both tables; 1 if a look or a release proves more than its price."""
    parser = argparse.ArgumentParser(prog="python -m audit tight", description="Likelihood ratios at worst neighbours.")
    parser.add_argument("--runs", type=int, default=RUNS, help="whole releases of each table")
    parser.add_argument("--draws", type=int, default=MOST_DRAWS, help="draws of noise for one look and one table")
    parser.add_argument("--cases", nargs="+", default=[case.name for case in IN_MEMORY], help="cases by their names")
    parser.add_argument("--rounds", type=int, default=Effort().rounds, help="rounds of the search")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--markdown", type=Path, help="also write the tables into this page, between its marks")
    parser.add_argument("--roc", type=Path, help="also draw the ROC curves into this picture")
    parsed = parser.parse_args(arguments)
    effort = Effort(rounds=parsed.rounds)
    with ProcessPoolExecutor(parsed.workers, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(search_case, name, effort, parsed.runs * (name in WHOLE)) for name in parsed.cases]
        found = []
        for job in jobs:
            found.append(job.result())
            print(f"searched {found[-1].case} ({found[-1].seconds:.0f} s)", flush=True)
        whole = [one.cells() for one in found if one.evidence is not None]
        print(" | ".join(WHOLE_HEADER), *(" | ".join(line) for line in whole), sep="\n", flush=True)
        print(" | ".join(LOOK_HEADER), flush=True)
        chosen, looks, faults = choose_looks(found), [], [line[-1] == FAULT for line in whole]
        for line, fault in pool.map(measure_look, *zip(*chosen, strict=True), [parsed.draws] * len(chosen)):
            looks.append(line)
            faults.append(fault)
            print(" | ".join(line), flush=True)
    if parsed.roc:
        write_picture(draw_roc(found, "Likelihood-ratio test on all noisy tables"), parsed.roc, "--roc")
    if parsed.markdown:
        write_table(parsed.markdown, "looks", *choose_columns(LOOK_COLUMNS, LOOK_HEADER, looks))
        if whole:
            write_table(parsed.markdown, "whole", *choose_columns(WHOLE_COLUMNS, WHOLE_HEADER, whole))
    return int(any(faults))

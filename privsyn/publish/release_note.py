"""The data-release note: README.md beside the released table, in plain words (``templates/release.md.j2``).

It lists pairs of columns: measured pairs, also as a picture, and pairs that were only scored.
Scored pairs have their noisy scores, and the scores to expect by chance alone.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.certificate import Certificate, explain_missing_relations
from privsyn.data_contracts.domain import Clique
from privsyn.engine.plan import Plan
from privsyn.engine.step import LookDescription, ReleaseStep, Step, release_steps
from privsyn.pipelines.budget import share_trends
from privsyn.publish.certificate_of_run import PRIOR_PROMISE, TOTALS_PROMISE, list_measured_relations
from privsyn.publish.formats.tables import (
    choose_style,
    describe_linked_column,
    find_formulas,
    list_linked_ranges,
    list_ranges,
    name_csv,
    name_linked_file,
)
from privsyn.publish.markdown import render_note
from privsyn.tasks.codecs.cells import list_counted_alone
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.derived import SplitCodec
from privsyn.tasks.estimation.noisy import list_all_measured
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps.score_columns import REFERENCE_SENSITIVITY
from privsyn.tasks.synthesis.shards import plan_shards

SHOWN_VALUES = 12
"""Categories named one by one in the schema table; longer lists are cut and counted."""

LISTED = 30
"""Pairs of columns that are listed one by one, the strongest first."""


def release_note(
    plan: Plan,
    certificate: Certificate,
    rows: int,
    pairs: Sequence[RelatedPair],
    unmeasured: Sequence[ScoredPair] = (),
    *,
    private: bool,
) -> str:
    """Return Markdown: what the table is, what is promised, its columns, its cost, how to use it and how not.

    ``pairs``: the measured pairs of columns, the strongest first; ``unmeasured``: those that were only scored.
    """
    request, spec = plan.request, plan.request.spec
    ranges, trends = list_ranges(request), bool(share_trends(request))
    one_file = len(plan_shards(rows, spec.mechanism.synthesis)) == 1
    table = "synthetic.parquet" if one_file else "synthetic/part-*.parquet"
    counts_first = sorted(plan.steps, key=lambda s: isinstance(s, ReleaseStep) and s.look.noise_of != "a count")
    return render_note(
        "release.md.j2",
        c=certificate,
        spec=spec,
        private=private,
        rows=rows,
        table=table,
        linked=spec.table_names,
        linked_file=name_linked_file,
        further=spec.further_tables,
        further_ranges=list_linked_ranges(request) if request.table_pairs else {},
        describe_column=describe_linked_column,
        csv=name_csv(table),
        style=choose_style(spec, ranges),
        formulas=find_formulas(ranges),
        estimated=spec.mechanism.synthesis.rows == "auto",
        ranges=ranges,
        looks=list_looks(plan.steps),
        relations=list_measured_relations(plan, certificate.stages),
        missing=explain_missing_relations(prior=certificate.prior is not None, trends=trends),
        trends=trends,
        pairs=pairs,
        possible_pairs=comb(len(plan.domain.attributes) - len(list_counted_alone(request.encoding.binning)), 2),
        unmeasured=unmeasured,
        files=[file for step in counts_first for file in step.published.values() if file.words],
        limits=list(dict.fromkeys(step.limit for step in plan.steps if step.limit)),  # table pairs repeat steps
        prior_promise=PRIOR_PROMISE,
        totals_promise=TOTALS_PROMISE,
        SHOWN=SHOWN_VALUES,
        LISTED=LISTED,
        PICTURE=NAME,
    )


Looks = Mapping[str, LookDescription]
"""Release step -> the facts of its look."""


def list_looks(steps: Iterable[Step]) -> Looks:
    """Return the looks at the private table of these steps, by the step's name."""
    return {step.name: step.look for step in release_steps(steps)}


class RelatedPair(NamedTuple):
    """Two columns that were counted together.

    ``strength``: the share of rows that must change for the columns to be independent, by the consistent counts, in
    [0, 1).  ``sigma``: the standard deviation of the noise of a measured count of the pair, in records.
    """

    columns: tuple[str, str]
    strength: float
    sigma: float


ColumnCodes = Mapping[str, NDArray[np.int64]]
"""Attribute that splits a column -> the column's code for each of its codes, shape (codes,)."""


def find_column_codes(recode: Recode, codecs: Sequence[Codec]) -> dict[str, NDArray[np.int64]]:
    """Return the column's codes for attributes that a computed column splits.

    ``recode``: the released recoding.  Codes of an attribute that share values of the column become one code.
    """
    import networkx as nx  # here: few releases have such attributes, and it loads slowly

    codes_by_attribute = {}
    for codec in codecs:
        if isinstance(codec, SplitCodec) and codec.attribute in recode:
            recoded = recode[codec.attribute]
            alone = -1 - codec.code_alone[recoded.kept]
            links = zip(recoded.coarse[recoded.kept].tolist(), alone.tolist(), strict=True)
            codes = np.zeros(recoded.size, dtype=np.int64)
            for number, joined in enumerate(nx.connected_components(nx.Graph(links))):
                codes[[code for code in joined if code >= 0]] = number
            codes_by_attribute[codec.attribute] = codes
    return codes_by_attribute


def list_related_pairs(consistent: pa.Table, column_codes: ColumnCodes) -> list[RelatedPair]:
    """Return every pair inside a measured marginal, the strongest first; ``consistent``: the released table MARGINALS.

    ``column_codes``: see :func:`find_column_codes`; strength is between columns, not split attributes.  A pair in
    several marginals gets the smallest noise; in a larger marginal, a count of the pair sums counts and their noise.
    """
    marginals = [
        (tuple(row["attributes"]), np.asarray(row["counts"], dtype=np.float64), float(row["sigma"]))
        for row in consistent.select(["attributes", "counts", "sigma"]).to_pylist()
    ]
    sizes = {names[0]: counts.size for names, counts, _ in marginals if len(names) == 1}
    best: dict[Clique, RelatedPair] = {}
    for names, counts, sigma in marginals:
        shaped = counts.reshape([sizes[name] for name in names]) if len(names) > 1 else counts
        for i, j in combinations(range(len(names)), 2):
            others = tuple(axis for axis in range(len(names)) if axis not in (i, j))
            pair = (names[i], names[j])
            noise = sigma * math.sqrt(math.prod(shaped.shape[axis] for axis in others))
            if pair not in best or noise < best[pair].sigma:
                counted = _sum_by_column(shaped.sum(axis=others), [column_codes.get(name) for name in pair])
                best[pair] = RelatedPair(pair, _compute_strength(counted), noise)
    return sorted(best.values(), key=lambda pair: (-round(pair.strength, 6), pair.columns))


def _sum_by_column(counts: NDArray[Any], codes: Sequence[NDArray[np.int64] | None]) -> NDArray[Any]:
    """Return the counts of a pair, summed over codes with the same code of their column."""
    for axis, column_codes in enumerate(codes):
        if column_codes is not None:
            summed = np.zeros((int(column_codes.max()) + 1, counts.shape[1 - axis]))
            np.add.at(summed, column_codes, counts if axis == 0 else counts.T)
            counts = summed if axis == 0 else summed.T
    return counts


def _compute_strength(counts: NDArray[Any]) -> float:
    total = float(counts.sum())
    if total <= 0:
        return 0.0
    shares = counts / total
    return 0.5 * float(np.abs(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))).sum())


SCORES = "indif_scores"
"""Prefix of the names of release steps that score pairs against independence."""


class ScoredPair(NamedTuple):
    """A pair of columns with a noisy score but no joint counts; all figures are shares of the rows.

    ``score``: half the noisy L1 distance from independence, in coarse codes; ``chance``: the mean score of independent
    columns with these counts; ``noise``: the score's standard deviation.
    """

    columns: tuple[str, str]
    score: float
    chance: float
    noise: float


def list_score_steps(steps: Sequence[Step]) -> list[ReleaseStep]:
    """Return the release steps whose noisy answers are scores of pairs."""
    return [step for step in release_steps(steps) if step.name.startswith(SCORES)]


def list_unmeasured_pairs(
    receipts: Sequence[pa.Table],
    answers: Sequence[pa.Table],
    consistent: pa.Table,
    measured: Sequence[RelatedPair],
    column_codes: ColumnCodes,
    recode: Recode,
    records: int,
) -> list[ScoredPair]:
    """Return every scored pair that is in no measured marginal, by how far its score exceeds chance.

    ``receipts``, ``answers``: the released tables of :func:`list_score_steps`; ``consistent``: the released table
    MARGINALS; ``recode``: the released recoding, whose noisy one-ways are the reference of scores with the sensitivity
    ``records``.  Attributes that a computed column splits (``column_codes``) are left out, since they are not columns.
    """
    counted = {frozenset(pair.columns) for pair in measured}
    singles = {
        row["attributes"][0]: np.maximum(np.asarray(row["counts"], dtype=np.float64), 0.0)
        for row in consistent.select(["attributes", "counts"]).to_pylist()
        if len(row["attributes"]) == 1
    }
    totals = {name: float(counts.sum()) for name, counts in singles.items()}
    shares = {name: counts / max(totals[name], 1.0) for name, counts in singles.items()}
    noise_of = {name: _find_noise(recode, name, len(counts)) for name, counts in singles.items()}
    unmeasured = []
    for query, answer in zip(*list_all_measured(receipts, answers), strict=True):
        names = query.attributes
        if frozenset(names) in counted or not all(name in singles and name not in column_codes for name in names):
            continue
        rows = totals[names[0]]
        if rows > 0:
            score, noise = float(answer[0]) / (2 * rows), query.sigma / (2 * rows)
            noisy = query.sensitivity == REFERENCE_SENSITIVITY * records
            sigmas = [noise_of[name] / rows if noisy else 0.0 * noise_of[name] for name in names]
            chance = _compute_chance([shares[name] for name in names], sigmas, rows)
            unmeasured.append(ScoredPair((names[0], names[1]), score, chance, noise))
    return sorted(unmeasured, key=lambda pair: (round(pair.chance - pair.score, 6), pair.columns))


def _find_noise(recode: Recode, name: str, size: int) -> NDArray[np.float64]:
    """Return the standard deviation of the noise in each of ``size`` codes, in records; 0 if unknown."""
    r = recode.get(name)
    if r is None or r.size != size:
        return np.zeros(size)
    return np.sqrt(np.bincount(r.coarse[r.kept], weights=r.variance[r.kept], minlength=size))


def _compute_chance(shares: Sequence[NDArray[np.float64]], sigmas: Sequence[NDArray[np.float64]], rows: float) -> float:
    """Return half the mean L1 distance of ``rows`` independent rows from the product of their one-ways, as a share.

    ``shares``: of the codes of both columns; ``sigmas``: noise of the reference's shares.  A cell is about normal, with
    variance n p q (1 - p) (1 - q) plus the variance of the noisy product.
    """
    (p, q), (of_p, of_q) = shares, sigmas
    variance = np.outer(p * (1 - p), q * (1 - q)) / rows + np.outer(of_p**2, q**2) + np.outer(p**2, of_q**2)
    return 0.5 * math.sqrt(2 / math.pi) * float(np.sqrt(variance.clip(min=0.0)).sum())


NAME = "relations.svg"
"""The picture's file in a released folder."""

MOST_LINES = 120
"""Largest number of pairs drawn."""

_LINE, _DOT = "#0072B2", "#333"  # blue of Okabe and Ito
_CHARACTERS, _CHARACTER = 22, 7.4  # most characters of a label, and the width of one
_WIDEST, _THINNEST = 7.0, 0.8
_LEVEL = 16
"""Largest number of columns with horizontal labels; with more, labels point outwards."""


def draw_picture(pairs: Sequence[RelatedPair]) -> str:
    """Return an SVG of the strongest MOST_LINES pairs (at least one), with the same bytes on any machine."""
    shown = pairs[:MOST_LINES]
    columns = sorted({name for pair in shown for name in pair.columns})
    level = len(columns) <= _LEVEL
    radius = max(110.0, 3.4 * len(columns))
    room = 16 + _CHARACTER * max(len(_shorten(name)) for name in columns)
    middle = (radius + room, radius + (30 if level else room))
    angles = {name: 2 * math.pi * i / len(columns) - math.pi / 2 for i, name in enumerate(columns)}
    strongest = max(pair.strength for pair in shown) or 1.0
    lines = [_draw_line(pair, angles, middle, radius, strongest) for pair in reversed(shown)]  # the strongest on top
    labels = [_draw_label(name, angle, middle, radius, level=level) for name, angle in angles.items()]
    left_out = (
        f"the {len(shown)} strongest of {len(pairs):,} pairs" if len(shown) < len(pairs) else f"{len(pairs)} pairs"
    )
    about = f"Measured relations: {left_out}", f"the broadest line is a strength of {100 * strongest:.1f} %"
    width, height = max(2 * middle[0], 300), 2 * middle[1] + 36
    words = (
        f'<text x="{_format_number(width / 2)}" y="{_format_number(height - 26 + 16 * i)}" text-anchor="middle" '
        f'fill="#555">'
        f"{escape(line)}</text>"
        for i, line in enumerate(about)
    )
    shift = f'<g transform="translate({_format_number(width / 2 - middle[0])} 0)">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_format_number(width)}" height="{_format_number(height)}" '
        f'viewBox="0 0 {_format_number(width)} {_format_number(height)}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/><title>{escape(", ".join(about))}</title>'
        f"{shift}{''.join(lines)}{''.join(labels)}</g>{''.join(words)}</svg>\n"
    )


def make_data_uri(svg: str) -> str:
    """Return the picture as a data URI."""
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode("ascii")


def _draw_line(
    pair: RelatedPair, angles: dict[str, float], middle: tuple[float, float], radius: float, strongest: float
) -> str:
    (x1, y1), (x2, y2) = (_compute_place(angles[name], middle, radius) for name in pair.columns)
    bend = 0.35
    x, y = (m + bend * ((a + b) / 2 - m) for m, a, b in zip(middle, (x1, y1), (x2, y2), strict=True))
    part = pair.strength / strongest
    width = max(_THINNEST, _WIDEST * part)
    words = f"{_shorten(pair.columns[0])} × {_shorten(pair.columns[1])}: {100 * pair.strength:.1f} %"
    return (
        f'<path d="M{_format_number(x1)} {_format_number(y1)}Q{_format_number(x)} {_format_number(y)} '
        f'{_format_number(x2)} {_format_number(y2)}" fill="none" '
        f'stroke="{_LINE}" stroke-width="{_format_number(width)}" stroke-opacity="{0.25 + 0.65 * part:.2f}">'
        f"<title>{escape(words)}</title></path>"
    )


def _draw_label(name: str, angle: float, middle: tuple[float, float], radius: float, *, level: bool) -> str:
    x, y = _compute_place(angle, middle, radius)
    tx, ty = _compute_place(angle, middle, radius + (14 if level else 9))
    across = round(math.cos(angle), 6)
    turned = math.degrees(angle) + (180 if across < 0 else 0)
    turn = "" if level else f' transform="rotate({_format_number(turned)} {_format_number(tx)} {_format_number(ty)})"'
    anchor = "middle" if level and not across else "end" if across < 0 else "start"
    return (
        f'<circle cx="{_format_number(x)}" cy="{_format_number(y)}" r="3.5" fill="{_DOT}"/>'
        f'<text x="{_format_number(tx)}" y="{_format_number(ty)}" dy="4" '
        f'text-anchor="{anchor}"{turn}>{escape(_shorten(name))}</text>'
    )


def _shorten(name: str) -> str:
    """Return the name for a label, shortened and printable."""
    shown = name if len(name) <= _CHARACTERS else name[: _CHARACTERS - 1] + "…"
    return "".join(c if c.isprintable() else "\ufffd" for c in shown)


def _compute_place(angle: float, middle: tuple[float, float], radius: float) -> tuple[float, float]:
    return middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)


def _format_number(value: float) -> str:
    """Return the value with one decimal, so that rounding errors of machines do not show."""
    return f"{value:.1f}".removeprefix("-") if round(value, 1) == 0 else f"{value:.1f}"

"""One picture of a release, from released tables only, for the run page.

Draw in a subprocess, so that a crash cannot end the run: the converter aborts its process if it cannot reserve memory
(``ulimit -v``), which no ``except`` catches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import pi, sqrt
from typing import Any

import altair as alt

SHOWN_COLUMNS = 12
"""Largest number of columns in the picture: those furthest from the noisy counts, in units of their noise."""

SHOWN_MARGINALS = 12
"""Largest number of measured marginals in the picture, by the larger of the two errors."""

NOISY, SYNTHETIC = "#0072B2", "#D55E00"  # blue and vermilion of Okabe and Ito: told apart with any colour vision
_WIDTH, _HEIGHT, _ACROSS = 186, 92, 4
_NAME_LETTERS = 28

Content = dict[str, Any]
"""A chart, or a part of one, as Vega-Lite JSON."""


@dataclass(frozen=True)
class OneWayOverview:
    """One column from released tables: shares by bin as measured (noise may make them negative) and as synthesized.

    ``noise_sd``: standard deviation of each noisy share.  All four sequences have one entry per bin, or ValueError is
    raised.
    """

    column: str
    labels: tuple[str, ...]
    noisy: tuple[float, ...]
    noise_sd: tuple[float, ...]
    synthetic: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse sequences of different lengths (ValueError)."""
        self.bins()

    def bins(self) -> Bins:
        """Return the column as bins to draw: noisy shares first, synthetic shares second."""
        return Bins(self.labels, self.noisy, self.synthetic, self.noise_sd)

    @property
    def departure(self) -> float:
        """L1 between noisy and synthetic shares, divided by the L1 expected from noise (>= 0)."""
        l1 = sum(abs(n - s) for n, s in zip(self.noisy, self.synthetic, strict=True))
        return l1 / max(sqrt(2 / pi) * sum(self.noise_sd), 1e-12)


@dataclass(frozen=True)
class MarginalOverview:
    """One measured marginal: the L1 expected from its noise (shares, >= 0), and the L1 of synthesis (0..2)."""

    attributes: tuple[str, ...]
    cells: int
    expected_noise_l1: float
    synthesis_l1: float


def draw_overview(
    one_ways: Sequence[OneWayOverview], marginals: Sequence[MarginalOverview], *, title: str = ""
) -> bytes:
    """Return the picture as PNG bytes; either sequence may be empty.  The same inputs give the same picture.

    Top: bands of noisy shares plus or minus 2 standard deviations of their noise, and synthetic shares as dots; noise
    does not explain a dot outside its band.  Below: for each measured marginal, the error expected from noise, and the
    distance between the consistent counts and the synthetic table.
    """
    import vl_convert

    columns = sorted(one_ways, key=lambda o: (-o.departure, o.column))[:SHOWN_COLUMNS]
    worst = sorted(marginals, key=lambda m: (-max(m.expected_noise_l1, m.synthesis_l1), m.attributes))
    parts: list[Content] = []
    if columns:
        heading = "Bars: noisy share ± 2 sd of its noise, drawn from 0 to 100 %. Dots: synthetic share."
        heading += f" {_format_of(len(columns), len(one_ways))}"
        cells = [_lay_out_content(_draw_column(o, i)) for i, o in enumerate(columns)]
        title_of_cells = _draw_heading(f"{heading} columns").to_dict()
        parts.append({"concat": cells, "columns": _ACROSS, "spacing": 14, "title": title_of_cells})
    if worst:
        parts.append(_lay_out_content(_list_marginals(worst[:SHOWN_MARGINALS], len(worst))))
    if not parts:
        nothing = alt.Chart(alt.Data(values=[{}])).mark_text(text="Nothing was measured.", fontSize=13)
        parts.append(_lay_out_content(nothing))
    chart = {
        "$schema": alt.SCHEMA_URL,
        "title": alt.TitleParams(title or "The release", anchor="start", fontSize=16).to_dict(),
        "vconcat": parts,
        "spacing": 18,
        "resolve": {"scale": {"color": "independent", "shape": "independent"}},
        "config": {"view": {"stroke": "#dddddd"}, "background": "white"},
    }
    return _shrink(vl_convert.vegalite_to_png(chart, scale=1.1, allowed_base_urls=[]))


def _lay_out_content(chart: alt.TopLevelMixin) -> Content:
    """Return a small chart as a part of the whole picture, since Altair would copy it dozens of times."""
    return {k: v for k, v in chart.to_dict().items() if k not in ("$schema", "config")}


def make_data_uri(png: bytes) -> str:
    """Return the picture as a data URI for an image tag, about 4/3 of its size."""
    return "data:image/png;base64," + b64encode(png).decode("ascii")


def _shrink(png: bytes) -> bytes:
    """Return the PNG with its pixels compressed again, about a quarter of the converter's size."""
    head, pixels, position = png[:33], bytearray(), 8  # signature and IHDR stay as they are
    while position < len(png):
        length = int.from_bytes(png[position : position + 4], "big")
        if png[position + 4 : position + 8] == b"IDAT":
            pixels += png[position + 8 : position + 8 + length]
        position += 12 + length
    return head + _chunk(b"IDAT", zlib.compress(zlib.decompress(pixels), 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def _format_of(shown: int, all_of_them: int) -> str:
    return f"All {shown}" if shown == all_of_them else f"The worst {shown} of {all_of_them}"


def _draw_heading(text: str) -> alt.TitleParams:
    return alt.TitleParams(text, anchor="start", fontSize=12, fontWeight="normal")


def shorten(text: str, letters: int = _NAME_LETTERS) -> str:
    """Return the text, cut to ``letters`` with an ellipsis."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _draw_column(one_way: OneWayOverview, position: int) -> alt.LayerChart:
    bins = one_way.bins().merged()
    rows = [
        {"i": i, "low": _draw_within(n - 2 * sd), "high": _draw_within(n + 2 * sd), "synthetic": s}
        for i, (n, sd, s) in enumerate(zip(bins.first, bins.noise_sd or (), bins.second, strict=True))
    ]
    step = _WIDTH / max(1, len(rows))
    x = alt.X("i:O", title=None, axis=_bin_axis(bins.labels))
    y_axis = alt.Axis(title="share" if position % _ACROSS == 0 else None, format=".0%", tickCount=3, grid=False)
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
    band = base.mark_bar(color=NOISY, opacity=0.55, width=max(1.5, min(14, 0.7 * step)), minBandSize=1.5).encode(
        y=alt.Y("low:Q", axis=y_axis), y2="high:Q"
    )
    dot = base.mark_point(color=SYNTHETIC, filled=True, opacity=1, size=max(5, min(30, 3 * step))).encode(
        y=alt.Y("synthetic:Q", axis=y_axis)
    )
    title = alt.TitleParams(shorten(one_way.column), anchor="start", fontSize=11)
    return alt.LayerChart(layer=[band, dot], title=title, width=_WIDTH, height=_HEIGHT)


def _draw_within(share: float) -> float:
    return min(1.0, max(0.0, share))


def _bin_axis(labels: Sequence[str]) -> alt.Axis:
    """Return an axis with all labels if they fit, else the first and the last."""
    cut = [shorten(label, 14) for label in labels]
    fits = len(cut) <= 4 and sum(map(len, cut)) <= 28
    shown = list(range(len(cut))) if fits else [0, len(cut) - 1]
    return alt.Axis(
        values=shown,
        labelExpr=f"{json.dumps(cut)}[datum.value]",
        labelAngle=0,
        labelFontSize=9,
        labelBound=False,
        labelAlign=alt.expr(f"{json.dumps(fits)} ? 'center' : datum.value == 0 ? 'left' : 'right'"),
        ticks=False,
    )


def _list_marginals(marginals: Sequence[MarginalOverview], all_of_them: int) -> alt.LayerChart:
    names = [shorten(" × ".join(m.attributes), 56) + f" ({m.cells:,} cells)" for m in marginals]
    noise, synthesis = "expected from noise", "synthetic against consistent"
    rows = [
        {"i": i, "what": series, "l1": value}
        for i, m in enumerate(marginals)
        for series, value in ((noise, m.expected_noise_l1), (synthesis, m.synthesis_l1))
    ]
    axis = alt.Axis(
        labelExpr=f"{json.dumps(names)}[datum.value]", labelLimit=420, title=None, ticks=False, orient="right"
    )
    base = alt.Chart(alt.Data(values=rows)).encode(y=alt.Y("i:O", axis=axis))
    legend = alt.Legend(orient="top")
    colour = alt.Color("what:N", title=None, legend=legend)
    scale = alt.Scale(domain=[noise, synthesis], range=[NOISY, SYNTHETIC])
    line = base.mark_line(color="#bbbbbb").encode(
        x=alt.X("l1:Q", title="L1 distance of shares (0 to 2; noise: no upper bound)"), detail="i:O"
    )
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(
        x="l1:Q",
        color=colour.scale(scale),
        shape=alt.Shape("what:N", scale=alt.Scale(domain=[noise, synthesis]), title=None, legend=legend),
    )
    heading = _draw_heading(f"{_format_of(len(marginals), all_of_them)} measured marginals")
    return alt.LayerChart(layer=[line, dots], title=heading, width=560, height=alt.Step(17))


SHOWN_BINS = 60
"""Largest number of bins in one small picture; neighbours are merged beyond it."""


@dataclass(frozen=True)
class Bins:
    """Parallel sequences, one entry per bin: labels, shares of two tables (0..1), and the noise sd of a share."""

    labels: tuple[str, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]
    noise_sd: tuple[float, ...] | None

    def __post_init__(self) -> None:
        """Refuse sequences of different lengths (ValueError)."""
        others = [self.first, self.second, *([] if self.noise_sd is None else [self.noise_sd])]
        if any(len(other) != len(self.labels) for other in others):
            raise ValueError("labels, shares and noise must have one entry for each bin")

    def merged(self, limit: int = SHOWN_BINS) -> Bins:
        """Return at most ``limit`` bins, merging runs of neighbours of about equal length.

        Shares add up; variances of independent noise add up.  A run's label has its first and its last label.
        Raises ValueError for ``limit`` below 1.
        """
        n = len(self.labels)
        if self._has_room(limit):
            return self
        edges = [i * n // limit for i in range(limit + 1)]
        runs = [slice(a, b) for a, b in pairwise(edges)]
        return Bins(
            tuple(_format_span(self.labels[r]) for r in runs),
            tuple(sum(self.first[r]) for r in runs),
            tuple(sum(self.second[r]) for r in runs),
            None if self.noise_sd is None else tuple(sqrt(sum(s * s for s in self.noise_sd[r])) for r in runs),
        )

    def largest(self, limit: int) -> Bins:
        """Return at most ``limit`` bins of an unordered column: the largest bins in order, and the rest as one bin.

        Raises ValueError for ``limit`` below 1.
        """
        n = len(self.labels)
        if self._has_room(limit):
            return self
        size = [max(a, b) for a, b in zip(self.first, self.second, strict=True)]
        largest = sorted(sorted(range(n), key=lambda i: (-size[i], i))[: limit - 1])
        rest = sorted(set(range(n)) - set(largest))
        sd = self.noise_sd
        return Bins(
            (*(self.labels[i] for i in largest), f"{len(rest):,} others"),
            (*(self.first[i] for i in largest), sum(self.first[i] for i in rest)),
            (*(self.second[i] for i in largest), sum(self.second[i] for i in rest)),
            None if sd is None else (*(sd[i] for i in largest), sqrt(sum(sd[i] ** 2 for i in rest))),
        )

    def _has_room(self, limit: int) -> bool:
        if limit < 1:
            raise ValueError(f"a picture needs at least one bin: {limit}")
        return len(self.labels) <= limit


def _format_span(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} … {labels[-1]}"


_DRAWING_SECONDS = 120
"""Time limit of a drawing."""


class DrawingError(Exception):
    """The picture was not drawn."""


def draw_in_subprocess(
    one_ways: Sequence[OneWayOverview], marginals: Sequence[MarginalOverview], *, title: str
) -> bytes:
    """Return the PNG bytes of :func:`draw_overview`.

    Raises DrawingError if the subprocess ends without a picture, or takes more than two minutes.
    """
    content = {"one_ways": list(map(asdict, one_ways)), "marginals": list(map(asdict, marginals)), "title": title}
    try:
        done = subprocess.run(  # noqa: S603 - this module, with this interpreter
            [sys.executable, "-m", __name__],
            input=json.dumps(content).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=_DRAWING_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DrawingError(type(error).__name__) from None
    return done.stdout


def _draw() -> None:
    content = json.load(sys.stdin)
    one_ways = [OneWayOverview(**each) for each in content["one_ways"]]
    marginals = [MarginalOverview(**each) for each in content["marginals"]]
    sys.stdout.buffer.write(draw_overview(one_ways, marginals, title=content["title"]))


if __name__ == "__main__":
    _draw()

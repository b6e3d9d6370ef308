"""The graph of measured relations as a picture: columns on a circle, a line per pair, wider for stronger pairs."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from html import escape

from privsyn.publish.related_pairs import RelatedPair

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
    """Return the line of a pair, a curve bent towards the middle."""
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
    """Return a dot and the column's name."""
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

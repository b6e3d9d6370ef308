"""Covering designs of strength 2: sets of points so that every pair of points is in one of them.

PriView (Qardaji, Yang and Li, SIGMOD 2014) measures such views.  An affine plane of order q has q^2 points and q^2 + q
lines of q points, and every pair of points is on exactly one: for 64 points the known design of 72 views of 8.
"""

from __future__ import annotations

_FIELDS = {2: 0, 3: 0, 4: 0b111, 5: 0, 7: 0, 8: 0b1011}
"""Order of a field -> the irreducible polynomial over GF(2) that it is taken modulo, in bits; 0: integers modulo q."""

LARGEST = max(_FIELDS) ** 2
"""Points at most of a plane here."""


def build_affine_plane(points: int) -> list[tuple[int, ...]]:
    """Return the lines of the smallest affine plane with at least so many points, cut to these, each ascending.

    Points are 0 to ``points`` - 1; every pair of them is on exactly one line.  Lines of fewer than two are left out.
    Empty for more than LARGEST points.
    """
    order = next((q for q in _FIELDS if points <= q * q), None)
    if order is None:
        return []
    elements = range(order)
    sloped = [
        [x * order + _add(_multiply(slope, x, order), offset, order) for x in elements]
        for slope in elements
        for offset in elements
    ]
    upright = [[x * order + y for y in elements] for x in elements]
    lines = [tuple(sorted(p for p in line if p < points)) for line in (*upright, *sloped)]
    return [line for line in lines if len(line) > 1]


def _add(a: int, b: int, order: int) -> int:
    return a ^ b if _FIELDS[order] else (a + b) % order


def _multiply(a: int, b: int, order: int) -> int:
    modulus = _FIELDS[order]
    if not modulus:
        return a * b % order
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = a << 1, b >> 1
        a ^= modulus if a & order else 0
    return product

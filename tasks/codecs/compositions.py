"""Compositions of households: how many members of each role, as codes, by the public spec alone."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts.panels import Panel
from privsyn.tasks.codecs.codec import Codec, Columns, UnreleasedCodec

Integers: TypeAlias = NDArray[np.int64]


class CompositionCodec(UnreleasedCodec):
    """Codec of household compositions; the released table has no such column.

    ``roles``: the codec of the role column, with codes in the order of roles.
    """

    def __init__(self, panel: Panel, roles: Codec) -> None:
        self.attribute, self.sources, self.roles = panel.composition, (panel.composition,), roles
        self._most, self._once = panel.most, panel.once
        self.groups = np.arange(len(self.members), dtype=np.int32)  # the names are many, and made when asked for

    @cached_property
    def members(self) -> Integers:
        """Number of members of each role in each composition, shape (size, roles)."""
        members = np.zeros((1, 0), np.int64)
        for role in range(self.roles.size):
            most = 1 if role in self._once else self._most
            counts = np.arange(most + 1)
            members = np.column_stack([np.repeat(members, len(counts), axis=0), np.tile(counts, len(members))])
            members = members[members.sum(axis=1) <= self._most]
        return members[members.sum(axis=1) > 0]

    @cached_property
    def pairs(self) -> Integers:
        """Number of neighbour pairs of each kind in each composition, shape (size, kinds)."""
        first = np.cumsum(self.members, axis=1) > 0
        ahead = np.column_stack([np.zeros(len(first), bool), first[:, :-1]])
        other = (self.members > 0) & ahead
        return np.stack([other, np.maximum(self.members - 1, 0)], axis=2).reshape(len(first), -1)

    @cached_property
    def pairs_with_first(self) -> Integers:
        """Number of members after the second that pair with the first, by kind of pair, shape (size, kinds)."""
        members = np.arange(len(self.members))
        later, role = self.members.copy(), self.find_first(0)
        for place in (role, self.find_first(1)):
            later[members[place >= 0], place[place >= 0]] -= 1
        same = np.arange(later.shape[1]) == role[:, None]
        return np.stack([later * ~same, later * same], axis=2).reshape(len(later), -1)

    def find_first(self, place: int) -> Integers:
        """Return the role of the member at ``place`` in each composition, -1 if there is none."""
        role = (np.cumsum(self.members, axis=1) <= place).sum(axis=1)
        return np.where(role < self.members.shape[1], role, -1)

    @property
    def kinds(self) -> int:
        """Number of kinds of pairs: the second member's role, and whether the first member has the same role."""
        return 2 * self.roles.size

    def encode_members(self, members: Integers) -> Integers:
        """Return the code of each row of ``members``, shape (households, roles)."""
        codes: Integers = np.searchsorted(_to_bytes(self.members), _to_bytes(members))
        return codes

    def derive(self, columns: Columns) -> NDArray[Any]:
        """See :class:`UnreleasedCodec`; the source values are codes."""
        return np.asarray(columns[self.attribute])

    def labels(self) -> list[str]:
        """Return labels with the number of members of each role."""
        roles = self.roles.labels()
        return [", ".join(f"{n} {role}" for n, role in zip(row, roles, strict=True) if n) for row in self.members]


def _to_bytes(members: Integers) -> NDArray[np.bytes_]:
    """Return each row as bytes that sort like the rows; no number of roles overflows them."""
    return np.ascontiguousarray(members, ">u4").view(f"S{4 * members.shape[1]}")[:, 0]


def find_kinds(first: NDArray[Any], second: NDArray[Any]) -> Integers:
    """Return the kinds of pairs of members with these roles."""
    return second * 2 + (first == second)

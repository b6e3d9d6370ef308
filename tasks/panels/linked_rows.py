"""Linked rows of synthetic persons, as codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LinkedRows:
    """Linked rows, person by person and in order; every array has shape (rows,).

    ``person``: its number from 0; ``step``: the place in the order, in steps of its unit; ``drawn``: whether it is the
    row of the person's record; ``fine``: fine codes of all attributes of rows but the order's, and of those that are
    followed whether the value is that of the row before (:func:`privsyn.data_contracts.panels.name_stay`).
    """

    person: Integers
    step: Integers
    drawn: NDArray[np.bool_]
    fine: dict[str, Integers]

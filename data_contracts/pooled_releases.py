"""Earlier releases that a spec names: to pool their counts of the same unchanged data, or to take their cells."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.frozen_model import FrozenModel

MOST_EARLIER = 20
"""The most earlier releases."""

RUN = r"^[a-z0-9][a-z0-9_-]{0,80}$"
"""Pattern of run names."""


class EarlierLook(FrozenModel):
    """One earlier release, by its public name, with the (epsilon, delta) that its own looks at the data cost."""

    run: str = Field(pattern=RUN, description="Public name of the earlier run.")
    epsilon: float = Field(gt=0, le=1e6, description="Epsilon of that run's own looks.")
    delta: float = Field(gt=0, lt=1, description="Delta of that run's own looks.")


class Improvement(FrozenModel):
    """The earlier releases that are pooled, the first one first, and what the new looks cost by themselves."""

    earlier: tuple[EarlierLook, ...] = Field(description="Pooled releases of the same unchanged data, oldest first.")
    epsilon: float = Field(gt=0, le=1e6, description="Epsilon of the new looks alone.")
    delta: float = Field(gt=0, lt=1, description="Delta of the new looks alone.")

    @field_validator("earlier")
    @classmethod
    def _check_earlier(cls, earlier: tuple[EarlierLook, ...]) -> tuple[EarlierLook, ...]:
        if not 1 <= len(earlier) <= MOST_EARLIER:
            raise FieldError(f"must name 1 to {MOST_EARLIER} earlier releases", "Name the run that is improved")
        names = [look.run for look in earlier]
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            raise FieldError(f"names the run {twice!r} twice", "Take one out: the same counts add nothing")
        return earlier

    @property
    def looks(self) -> tuple[tuple[float, float], ...]:
        """(epsilon, delta) of every release in order, the new one last."""
        return (*((look.epsilon, look.delta) for look in self.earlier), (self.epsilon, self.delta))


def check_poolable(mechanism: str) -> None:
    """Raise FieldError for a mechanism whose releases cannot be pooled: all but privsyn."""
    if mechanism != "privsyn":
        raise FieldError(
            f"releases by the mechanism {mechanism!r} cannot be pooled",
            "Take the field out, or improve a release by the mechanism privsyn",
            ("improves",),
        )


MOST_CELLS = 4_096
"""The most cells of one column that a spec takes from an earlier release."""


class ColumnCells(FrozenModel):
    """The cells of one column in an earlier release."""

    low: tuple[float, ...] = Field(
        min_length=1, max_length=MOST_CELLS, description="Where each cell begins, ascending; one: equal cells."
    )
    doubtful: tuple[int, ...] = Field(
        default=(), max_length=MOST_CELLS, description="Numbers, from 0, of the cells where its first look saw no rows."
    )

    @model_validator(mode="after")
    def _check_order(self) -> ColumnCells:
        if any(low >= after for low, after in zip(self.low, self.low[1:], strict=False)):
            raise FieldError("the cells do not ascend", "Name the release with `release: FOLDER`", ("low",))
        if any(not 0 <= number < len(self.low) for number in self.doubtful):
            raise FieldError(
                "numbers a cell that is not there", "Name the release with `release: FOLDER`", ("doubtful",)
            )
        return self


class EarlierCells(FrozenModel):
    """The earlier release whose cells are used in place of a first look."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"release"})

    release: str = Field(default="", description="Folder of an earlier release.")
    run: str = Field(default="", pattern=rf"^$|{RUN}", description="Its run, filled in when the spec is read.")
    columns: dict[str, ColumnCells] = Field(
        default_factory=dict, description="Its cells by column, filled in when the spec is read."
    )

    @model_validator(mode="after")
    def _check_place(self) -> EarlierCells:
        if bool(self.release) == bool(self.columns):
            raise FieldError("must name one earlier release", "Write `cells: {release: FOLDER}`")
        return self

"""The error that the validators of models raise."""

from __future__ import annotations


class FieldError(ValueError):
    """A value that a model refuses.

    ``problem``: what is wrong; ``cure``: what to do; neither ends with a full stop.  ``place``: the wrong field,
    relative to the field or model whose validator raises the error; empty for that field or model itself.
    """

    def __init__(self, problem: str, cure: str = "", place: tuple[str | int, ...] = ()) -> None:
        self.problem, self.cure, self.place = problem, cure, place
        super().__init__(f"{problem}. {cure}" if cure else problem)

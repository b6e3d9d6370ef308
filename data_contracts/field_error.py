"""The error that the validators of models raise."""

from __future__ import annotations


class FieldError(ValueError):
    """A value that a model refuses.

    ``problem`` says what is wrong and ``cure`` what to do, neither with a full stop.  ``place`` is the field that the
    error is about, relative to the field or model whose validator raises it; empty for that field itself.
    """

    def __init__(self, problem: str, cure: str = "", place: tuple[str | int, ...] = ()) -> None:
        self.problem, self.cure, self.place = problem, cure, place
        super().__init__(f"{problem}. {cure}" if cure else problem)

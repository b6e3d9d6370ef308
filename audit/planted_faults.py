"""Faults that are planted into whole cases of the referee: every instrument is held to them.

Each is a bug of a kind that trusted code has shipped.  No package ships them.  `audit/mutants.py` has those of the
lower bounds, which need a release of three columns.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from audit.referee_cases import CASES, Case
from privsyn.data_contracts.columns import DateColumn
from privsyn.engine.step import ReleaseStep, Step
from privsyn.tasks.codecs import encode_rows
from privsyn.tasks.panels import row_order
from privsyn.tasks.panels.row_order import RowOrder
from privsyn.tasks.privacy.noise import NoiseSource
from privsyn.tasks.steps import encode

ChangeSteps = Callable[[Sequence[Step]], Sequence[Step]]
EPOCH = dt.date(1970, 1, 1)
BY_NAME = {case.name: case for case in CASES}


@dataclass(frozen=True)
class Fault:
    """One planted fault.

    ``case``: the name of the case that it is planted into; ``change``: what it makes of the steps; ``plant``: changes
    the package while a case runs; ``noise``: sigma that is drawn, as a share of the declared one.
    """

    name: str
    case: str
    change: ChangeSteps = lambda steps: steps
    plant: Callable[[Case], AbstractContextManager[None]] = lambda case: nullcontext()
    noise: float = 1.0


class ScaledNoise:
    """Noise of another scale than the one that is asked for."""

    private: ClassVar[bool] = False

    def __init__(self, source: NoiseSource, scale: float) -> None:
        self.source, self.scale = source, scale

    def draw(self, sigma: float, cells: int) -> NDArray[np.int64]:
        """Return ``cells`` draws of ``scale`` times ``sigma`` counts."""
        return self.source.draw(self.scale * sigma, cells)


def change_looks(**fields: Callable[[ReleaseStep], Any]) -> ChangeSteps:
    """Return what replaces some fields of every release step."""

    def change(steps: Sequence[Step]) -> Iterator[Step]:
        for step in steps:
            if isinstance(step, ReleaseStep):
                yield replace(step, **{name: make(step) for name, make in fields.items()})
            else:
                yield step

    return lambda steps: tuple(change(steps))


def double_answers(step: ReleaseStep) -> Any:
    """Return a look whose true answers are twice as large."""
    return lambda *arguments: [2 * np.asarray(counts) for counts in step.exact(*arguments)]


def leave_out_largest_look(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps whose shares add up to 1 without the look of the largest share, which is not charged."""
    largest = max((step for step in steps if isinstance(step, ReleaseStep)), key=lambda step: step.share)

    def charge(step: ReleaseStep) -> Mapping[str, Fraction]:
        return {look: share / (1 - largest.share) for look, share in step.shares.items()}

    return change_looks(shares=charge)(steps)


def choose_by_number_of_rows(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps of `mst`, which chooses one relation fewer where the private table has an odd number of rows."""

    def change(step: Step) -> Step:
        def run(request: Any, inputs: Any, progress: Any) -> Mapping[str, Any]:
            assert step.run is not None  # noqa: S101
            rows = sum(batch.num_rows for batch in inputs.batches("encode.encoded_rows"))
            made = step.run(request, inputs, progress)
            return {name: table.slice(rows % 2) for name, table in made.items()}  # type: ignore[union-attr]

        return replace(step, run=run, inputs=(*step.inputs, "encode.encoded_rows"))

    return tuple(change(step) if step.name == "select_tree" else step for step in steps)


@contextmanager
def hash_coarse_codes(case: Case) -> Iterator[None]:
    """Choose rows of a person by a hash of coarse codes, and by storage order where hashes tie."""
    original = RowOrder.hash_rows
    coarse = case.make_request(case.make(1, 0)).encoding

    def hash_codes(order: RowOrder, batch: pa.RecordBatch) -> row_order.Words:
        return original(order, encode_rows.encode_batch(batch, coarse, encode_rows.Repairs()))

    with ExitStack() as stack:
        stack.enter_context(patch.object(RowOrder, "hash_rows", hash_codes))
        stack.enter_context(patch.object(row_order, "_sort_by_content", lambda order, same, read: None))
        yield


@contextmanager
def rank_values(case: Case) -> Iterator[None]:
    """Put the ranks of its values in the table, spread over its bounds, in place of the column `start`."""
    original, bounds = encode_rows.encode_batch, case.make_request(case.make(1, 0)).spec.columns["start"]
    assert isinstance(bounds, DateColumn)  # noqa: S101
    first, days = (bounds.min - EPOCH).days, (bounds.max - bounds.min).days

    def rank(batch: pa.RecordBatch, *rest: Any) -> pa.RecordBatch:
        found, ranks = np.unique(np.asarray(batch.column("start").cast(pa.string())), return_inverse=True)
        spread = pa.array(first + ranks * days // max(len(found), 1), pa.int32()).cast(pa.date32())
        return original(batch.set_column(batch.schema.get_field_index("start"), "start", spread), *rest)

    with patch.object(encode_rows, "encode_batch", rank), patch.object(encode, "encode_batch", rank):
        yield


FAULTS = (
    Fault("rows chosen by a hash of coarse codes", "privsyn, persons of 1", plant=hash_coarse_codes),
    Fault("a sensitivity of half what it is", "mst, persons of 2", change=change_looks(exact=double_answers)),
    Fault("a look that is not charged", "mst, persons of 2", change=leave_out_largest_look),
    Fault("a domain read from the data", "mst, persons of 2", plant=rank_values),
    Fault("noise of half the scale", "mst, persons of 2", noise=0.5),
    Fault("post-processing that counts rows", "mst, persons of 2", change=choose_by_number_of_rows),
)
"""Every instrument is held to all of them; audit/recorder_table.py says which sees which."""

"""How linked rows are decoded beside the rows above."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from privsyn.tasks.steps.decode_linked import _Decoder


@pytest.mark.filterwarnings("error")
def test_rows_with_the_same_missing_values_are_alike() -> None:
    """A column of categories comes as a dictionary, whose nulls are no numbers."""
    columns = {"a": pa.array(["x", None, "y", None]).dictionary_encode(), "b": pa.array([1, None, 1, 2])}
    alike = _Decoder._number_donor_groups(SimpleNamespace(_number=np.zeros(4)), columns, ["a"])  # type: ignore[arg-type]
    assert alike.tolist() == [0, 2, 1, 2]
    both = _Decoder._number_donor_groups(SimpleNamespace(_number=np.zeros(4)), columns, ["a", "b"])  # type: ignore[arg-type]
    assert len(set(both.tolist())) == 4

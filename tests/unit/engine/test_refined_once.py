"""What all one-ways of a release say together is worked out once, though several of its steps ask for it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from privsyn.engine import inputs
from tests.support.answered import released
from tests.support.specs import make_spec


def test_one_ways_are_pooled_once_for_all_steps_of_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, plain = [], inputs.recompress

    def count(*arguments: Any) -> Any:
        calls.append(1)
        return plain(*arguments)

    monkeypatch.setattr(inputs, "recompress", count)
    monkeypatch.setattr(inputs, "_REFINED", {})
    rows, columns = pa.table({"a": [True, False] * 200, "b": [0, 1, 2, 3] * 100}), {"a": {"kind": "boolean"}}
    spec = make_spec(columns | {"b": {"kind": "integer", "min": 0, "max": 3}}, synthesis={"sweeps": 1})
    first, again, other = (released(rows, spec, seed).table for seed in (0, 0, 1))
    assert len(calls) == 2  # one for each of the two draws
    assert first.equals(again) and not first.equals(other)

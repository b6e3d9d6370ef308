"""A column whose codes are split by the bins of a computed one: nothing is lost, and what cannot be is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import privsyn
from privsyn.engine.request import Request
from privsyn.pipelines.common_steps import ENCODE
from privsyn.tasks.codecs import EncodingPlan, plan
from privsyn.tasks.codecs.derived import SplitCodec, find_code_bin_pairs
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.estimation.known_zeros import build_known_zeros
from tests.support.evaluations import slight_settings
from tests.support.specs import make_spec

PARTS: dict[str, Any] = {
    "hour": {"kind": "integer", "min": 0, "max": 23},
    "minute": {"kind": "integer", "min": 0, "max": 59},
    "time": {"kind": "integer", "min": 0, "max": 2400, "bins": 32},
}
DERIVED = [{"derive": {"time": "hour * 100 + minute"}}]


def split_of(columns: dict[str, Any], rules: list[Any]) -> tuple[EncodingPlan, list[SplitCodec]]:
    encoding = plan(make_spec(columns, rules=rules))
    return encoding, [c for c in encoding.codecs if isinstance(c, SplitCodec)]


def test_the_hour_is_split_where_the_bin_of_the_time_changes() -> None:
    encoding, (split,) = split_of(PARTS, DERIVED)
    assert split.attribute == "hour" and split.size == 40, "16 hours of 24 lie in two bins of 75"
    assert split.labels()[:4] == ["0 (0..74)", "1 (75..149)", "1 (150..224)", "2 (150..224)"]
    assert split.in_order == ((0, 40),) and (np.diff(split.groups) == 1).all()
    assert split.values(fine=True).tolist() == sorted(split.values(fine=True).tolist())  # type: ignore[union-attr]
    assert encoding.domain.attributes == ("hour", "minute"), "the time is not measured by itself"


def test_every_row_keeps_its_value_and_has_the_computed_bin() -> None:
    encoding, (split,) = split_of(PARTS, DERIVED)
    hours, minutes = (grid.ravel() for grid in np.meshgrid(np.arange(24), np.arange(60)))
    times = hours * 100 + minutes
    batch = pa.RecordBatch.from_pydict({"hour": hours, "minute": minutes, "time": np.zeros_like(hours)})
    repairs = Repairs()
    codes = {a: np.asarray(c) for a, c in zip(("hour", "minute"), encode_batch(batch, encoding, repairs), strict=True)}
    decoded = encoding.decode(codes, np.random.default_rng(0))
    assert decoded["hour"].to_pylist() == hours.tolist() and decoded["time"].to_pylist() == times.tolist()
    (time,) = encoding.computed
    assert [label.split("(")[1][:-1] for label in np.array(split.labels())[codes["hour"]]] == [
        time.bin_labels()[time.groups[c]] for c in time.encode({"time": pa.array(times)})[0]
    ]
    allowed = np.zeros((split.size, 60), dtype=bool)
    allowed[codes["hour"], codes["minute"]] = True
    assert np.array_equal(split.forbidden(), ~allowed), "known zeros are the cells that no row is in"
    assert {column for column, _ in repairs.counts} <= {"rules.time"}


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        (PARTS, {"derive": {"hour": "time // 100"}}),  # of one column
        ({**PARTS, "hour": {"kind": "integer", "min": 0, "max": 23, "bins": 4}}, *DERIVED),  # several values a code
        (  # as many codes as the pair
            {
                "age": {"kind": "integer", "min": 18, "max": 64},
                "educ": {"kind": "integer", "min": 0, "max": 20},
                "exper": {"kind": "integer", "min": 0, "max": 58},
            },
            {"derive": {"exper": "age - educ - 6"}},
        ),
    ],
)
def test_where_a_split_is_not_small_nothing_is_split(columns: dict[str, Any], rule: dict[str, Any]) -> None:
    assert split_of(columns, [rule])[1] == []


def test_known_zeros_are_computed_once_for_the_same_codes() -> None:
    from privsyn.tasks.estimation.recode import AttributeRecode

    encoding, _ = split_of(PARTS, DERIVED)

    def recode(size: int) -> AttributeRecode:
        codes = np.arange(size, dtype=np.int32)
        return AttributeRecode(codes, np.ones(size, bool), np.ones(size), np.ones(size), np.ones(size))

    def recoded() -> dict[str, AttributeRecode]:
        return {c.attribute: recode(c.size) for c in encoding.codecs}

    first = build_known_zeros(encoding, recoded())
    assert build_known_zeros(encoding, recoded()) is first
    merged = recoded()
    merged["minute"].coarse[1:] -= 1
    assert build_known_zeros(encoding, merged) is not first
    again = split_of(PARTS, DERIVED)[0]
    assert build_known_zeros(again, recoded()) is not first and build_known_zeros(again, recoded()).tables[0][
        1
    ].shape == (40, 60)


@pytest.mark.slow
def test_a_release_with_a_split_column_is_evaluated(places: Path) -> None:
    rng = np.random.default_rng(0)
    hours, minutes = rng.integers(0, 24, 400), rng.choice([0, 15, 30, 45], 400)
    table = pa.table({"hour": hours, "minute": minutes, "time": hours * 100 + minutes})
    spec = make_spec(PARTS, rules=DERIVED)
    release = privsyn.release(table, spec, out=places, progress=False)
    made = release.table.to_pydict()
    assert made["time"] == [100 * h + m for h, m in zip(made["hour"], made["minute"], strict=True)]
    report = privsyn.evaluate(release, table, settings=slight_settings(places), out=places)
    assert "PRIVATE" in repr(report)


def test_a_key_tells_two_splits_of_one_size_apart() -> None:
    keys = []
    for expression in ("hour * 100 + minute", "hour * 100 + 59 - minute"):
        spec = make_spec(PARTS, rules=[{"derive": {"time": expression}}])
        keys.append(ENCODE.build_key(Request(spec)))
    assert keys[0]["split"] != keys[1]["split"]


def test_codes_that_no_row_has_go_with_a_bin_all_the_same() -> None:
    assert find_code_bin_pairs(np.array([[-1, -1], [0, 1], [-1, -1]])).tolist() == [[0, 0], [1, 0], [1, 1], [2, 1]]

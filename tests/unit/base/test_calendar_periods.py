"""The calendar of periods, against moments worked out by hand."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from privsyn.base.calendar_periods import check_period, find_beginning, list_periods, name_period
from privsyn.base.errors import RequestError
from privsyn.data_contracts.promise import Every

UTC = dt.UTC


@pytest.mark.parametrize(
    ("moment", "zone", "every", "label"),
    [
        (dt.datetime(2026, 11, 21, 3, tzinfo=UTC), "UTC", "day", "2026-11-21"),
        (dt.datetime(2026, 11, 21, 3, tzinfo=UTC), "UTC", "week", "2026-W47"),
        (dt.datetime(2026, 11, 21, 3, tzinfo=UTC), "UTC", "month", "2026-11"),
        (dt.datetime(2026, 11, 21, 3, tzinfo=UTC), "UTC", "quarter", "2026-Q4"),
        (dt.datetime(2026, 11, 21, 3, tzinfo=UTC), "UTC", "year", "2026"),
        (dt.datetime(2026, 11, 21, 3, 44, 59, tzinfo=UTC), "UTC", "hour", "2026-11-21T03Z"),
        (dt.datetime(2026, 11, 21, 3, 44, 59, tzinfo=UTC), "UTC", "quarter-hour", "2026-11-21T0330Z"),
        (dt.datetime(2026, 11, 21, 3, 45, tzinfo=UTC), "UTC", "quarter-hour", "2026-11-21T0345Z"),
        # half past midnight on the first in Berlin is still last month in UTC
        (dt.datetime(2026, 10, 31, 23, 30, tzinfo=UTC), "Europe/Berlin", "month", "2026-11"),
        (dt.datetime(2026, 10, 31, 23, 30, tzinfo=UTC), "UTC", "month", "2026-10"),
        (dt.datetime(2026, 12, 31, 23, 30, tzinfo=UTC), "Asia/Tokyo", "year", "2027"),
        (dt.datetime(2027, 1, 1, 0, 30, tzinfo=UTC), "America/New_York", "quarter", "2026-Q4"),
        # the week of a new year's Friday belongs to the year before
        (dt.datetime(2027, 1, 1, 12, tzinfo=UTC), "UTC", "week", "2026-W53"),
        (dt.datetime(2025, 12, 29, 12, tzinfo=UTC), "UTC", "week", "2026-W01"),
        # the hour that is there twice, and the one that is not
        (dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "Europe/Berlin", "day", "2026-10-25"),
        (dt.datetime(2026, 10, 25, 1, 30, tzinfo=UTC), "Europe/Berlin", "day", "2026-10-25"),
        (dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "Europe/Berlin", "hour", "2026-10-25T00Z"),
        (dt.datetime(2026, 10, 25, 1, 30, tzinfo=UTC), "Europe/Berlin", "hour", "2026-10-25T01Z"),
        (dt.datetime(2026, 11, 21, 20, 5, tzinfo=UTC), "Asia/Kolkata", "quarter-hour", "2026-11-21T2000Z"),
        (dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC), "Europe/Berlin", "day", "2026-03-29"),
        (dt.datetime(2026, 3, 31, 22, 0, tzinfo=UTC), "Europe/Berlin", "quarter", "2026-Q2"),
    ],
)
def test_a_moment_lies_in_one_period(moment: dt.datetime, zone: str, every: Every, label: str) -> None:
    assert name_period(moment, every, zone) == label
    assert check_period(label) == label


@pytest.mark.parametrize(
    "label",
    ["", "2026-13", "2026-00", "2026-02-30", "2026-W54", "2025-W53", "2026-Q5", "2026-q4", "26-11", "2026-11 ",
     "2026/11", "2026-1", "2026-11-21T00", "2026-11-21T24Z",
     "2026-11-21T1320Z", "2026-11-21T13:15Z", "2026-11T13Z", "2026-11-21T13z", "../2026", "2026-11\n",
      "2\u066226-11", "9" * 500],
)  # fmt: skip
def test_other_labels_are_refused_in_words(label: str) -> None:
    with pytest.raises(RequestError, match=r"period: .*is not a period\. Write a day as") as refused:
        check_period(label)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("label", "zone", "begins"),
    [
        ("2031", "UTC", dt.datetime(2031, 1, 1, tzinfo=UTC)),
        ("2031-Q3", "UTC", dt.datetime(2031, 7, 1, tzinfo=UTC)),
        ("2026-W53", "UTC", dt.datetime(2026, 12, 28, tzinfo=UTC)),
        ("2026-12", "Europe/Berlin", dt.datetime(2026, 11, 30, 23, tzinfo=UTC)),
        ("2026-12-01", "Pacific/Kiritimati", dt.datetime(2026, 11, 30, 10, tzinfo=UTC)),
        ("2026-12-01", "America/New_York", dt.datetime(2026, 12, 1, 5, tzinfo=UTC)),
        ("2026-12-01T13Z", "Pacific/Kiritimati", dt.datetime(2026, 12, 1, 13, tzinfo=UTC)),
        ("2026-12-01T1345Z", None, dt.datetime(2026, 12, 1, 13, 45, tzinfo=UTC)),
    ],
)
def test_a_period_begins_at_one_moment_of_its_calendar(label: str, zone: str | None, begins: dt.datetime) -> None:
    assert find_beginning(label, zone) == begins


def test_without_a_zone_a_day_begins_on_this_computers_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", "Pacific/Auckland")
        time.tzset()
        begins = find_beginning("2026-12-01", None)
    time.tzset()
    assert begins == dt.datetime(2026, 11, 30, 11, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../../etc/passwd", "Europe", "UTC\0"])
def test_an_unknown_time_zone_is_refused_in_words(zone: str) -> None:
    with pytest.raises(RequestError, match=r"time_zone: .*is not a time zone"):
        name_period(dt.datetime(2026, 11, 21, tzinfo=UTC), "month", zone)


def test_a_moment_without_a_zone_is_a_fault() -> None:
    with pytest.raises(ValueError, match="no period"):
        name_period(dt.datetime(2026, 11, 21), "month", "UTC")


@pytest.mark.parametrize(
    ("first", "last", "labels"),
    [
        ("2026-11", "2027-02", ["2026-11", "2026-12", "2027-01", "2027-02"]),
        ("2026-Q3", "2027-Q1", ["2026-Q3", "2026-Q4", "2027-Q1"]),
        ("2026-W52", "2027-W01", ["2026-W52", "2026-W53", "2027-W01"]),
        ("2028-02-28", "2028-03-01", ["2028-02-28", "2028-02-29", "2028-03-01"]),
        ("2027", "2029", ["2027", "2028", "2029"]),
        ("2026-11-21T23Z", "2026-11-22T00Z", ["2026-11-21T23Z", "2026-11-22T00Z"]),
        ("2026-11-21T2330Z", "2026-11-22T0000Z", ["2026-11-21T2330Z", "2026-11-21T2345Z", "2026-11-22T0000Z"]),
        ("2026-11", "2026-11", ["2026-11"]),
    ],
)
def test_a_range_has_every_period_once_in_order(first: str, last: str, labels: list[str]) -> None:
    assert list_periods(first, last) == labels


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        ("2026-11", "2026-W50", "2026-11 is a month and 2026-W50 a week"),
        ("2026-11", "2026-10", "2026-10 is before 2026-11"),
        ("2026-11", "soon", "'soon' is not a period"),
        ("2000-01-01", "2026-01-01", "more than 1000 periods"),
    ],
)
def test_a_range_that_is_none_is_refused_in_words(first: str, last: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        list_periods(first, last)

"""What moved code must do as before: lineage keys, seeded releases, published tables and the JSON of the commands.

A difference that is meant is written with ``python -m tests.support.snapshots --write``, and shows in the commit.
"""

from __future__ import annotations

import pytest

from tests.support import snapshots


@pytest.mark.parametrize("name", snapshots.MAKERS)
def test_it_is_as_it_was(name: str) -> None:
    was, now = snapshots.kept(name), snapshots.made(name)
    assert list(now) == list(was)
    for part in was:
        assert now[part] == was[part], f"{name}: {part} differs; if that is meant: {snapshots.WRITE} {name}"

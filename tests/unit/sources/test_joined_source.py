"""Keys of two tables: looked up by their hashes, and never taken for another one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from privsyn.sources import joined_source
from privsyn.tasks.kernels import text_hash

KEYS = pa.array(["a", "", "é", "a ", "10"])
OWN = pa.array(["10", None, "b", "", "a", "é", "a", "010"])
PLACES = [4, None, None, 1, 0, 2, 0, None]


def test_each_key_is_found_at_its_place_and_no_other_is() -> None:
    assert joined_source._Keys(KEYS).find(OWN).to_pylist() == PLACES
    assert joined_source._Keys(KEYS.slice(1)).find(OWN.slice(1)).to_pylist() == [None, None, 0, None, 1, None, None]


@pytest.mark.parametrize(
    "hashes", [lambda texts: [0] * len(texts), lambda texts: [len(t.as_py() or "") for t in texts]]
)
def test_hashes_that_two_texts_share_change_nothing(hashes: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_hash, "hash_texts", hashes)
    assert joined_source._Keys(KEYS).find(OWN).to_pylist() == PLACES
    alone = joined_source._Keys(pa.array(["a", "bb"]))
    assert alone.find(pa.array(["b", "bb", "aa", "a"])).to_pylist() == [None, 1, None, 0]

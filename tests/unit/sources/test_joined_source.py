"""Keys of two tables: looked up by their hashes, and never taken for another one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from privsyn.base.errors import RequestError
from privsyn.sources import joined_source
from privsyn.sources.open_source import open_source
from privsyn.tasks.kernels import text_hash
from tests.support.linked_tables import Tables, make_tables_spec, make_tree, make_tree_content

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


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        (lambda tables: {"drugs": tables["drugs"].drop_columns(["visit"])}, "tables.drugs.columns"),
        (lambda tables: {"visits": tables["visits"].drop_columns(["visit"])}, "tables.visits.columns"),
        (lambda tables: {"buys": tables["buys"].append_column("more", tables["buys"]["week"])}, "tables.buys.columns"),
        (lambda tables: {"drugs": 5}, "tables.drugs"),
    ],
    ids=["no key of the row above", "no key", "one more", "no table"],
)
def test_a_table_of_a_tree_that_does_not_fit_is_named(changed: Callable[[Tables], Tables], field: str) -> None:
    tables = make_tree(3)
    with pytest.raises(RequestError) as refused:
        open_source(tables | changed(tables), make_tables_spec(make_tree_content()))
    assert refused.value.field == field

"""Keys of two tables: looked up by their hashes, and never taken for another one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from privsyn.base.errors import RequestError
from privsyn.engine.request import Request
from privsyn.sources import joined_source
from privsyn.sources.open_source import open_source
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.kernels import small_kernels
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.steps.encode import encode
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
    monkeypatch.setattr(small_kernels, "hash_texts", hashes)
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


def test_records_of_rows_in_no_order_do_not_hang_on_how_they_are_stored() -> None:
    content = make_tree_content()
    del content["drugs"]["order"]
    tables, spec, found = make_tree(60), make_tables_spec(content), []
    stored = np.arange(tables["drugs"].num_rows)
    for order in (stored, stored[::-1], np.random.default_rng(1).permutation(stored)):
        source = open_source(tables | {"drugs": tables["drugs"].take(order)}, spec)
        released = tuple(name for name in source.columns if name in spec.released_columns)
        pair_request = Request(spec, released).table_pairs["drugs"]
        rows = RowsOfPersons(source.further_tables["drugs"].batches)
        records = pa.Table.from_batches(encode(rows, pair_request.encoding, pair_request.spec.unit, Repairs()))
        found.append(records.sort_by([(name, "ascending") for name in records.column_names]))
    assert found[0].num_rows > 20
    assert found[0].equals(found[1]) and found[0].equals(found[2])

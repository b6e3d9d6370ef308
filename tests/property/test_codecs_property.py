"""Random specs and random arrays: encoding is total, codes stay in the domain, decoding returns valid values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import make_value_profile
from privsyn.tasks.codecs import plan
from tests.support.examples import choose_example_count
from tests.support.specs import anything, specs


@settings(max_examples=choose_example_count(150), deadline=None)
@given(specs, st.data())
def test_any_array_gets_codes_of_the_domain(spec: ReleaseSpec, data: st.DataObject) -> None:
    for codec in plan(spec).codecs:
        array = data.draw(anything)
        codes, repairs = codec.encode({codec.sources[0]: array})
        assert len(codes) == len(array)
        assert codes.dtype.kind == "u"
        assert len(codes) == 0 or codes.max() < codec.size
        assert all(0 < n <= len(array) for n in repairs.values())


@settings(max_examples=choose_example_count(150), deadline=None)
@given(specs, st.integers(0, 2**32))
def test_decode_then_encode_gives_the_codes_back_and_meets_the_contract(spec: ReleaseSpec, seed: int) -> None:
    rng = np.random.default_rng(seed)
    encoding = plan(spec)
    codes = {c.attribute: rng.integers(0, c.size, 40) for c in encoding.codecs}
    columns = encoding.decode(codes, rng)
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    profile = make_value_profile([batch], encoding.ranges())
    assert sum(profile["outside"].to_pylist()) == 0
    assert sum(profile["unwanted_nulls"].to_pylist()) == 0
    assert all(profile["type_matches"].to_pylist())
    for codec in (c for c in encoding.codecs if c.attribute in spec.columns):  # not what values are rounded to
        column = spec.columns[codec.attribute]
        again, repairs = codec.encode(columns)
        assert set(repairs) <= ({"null"} if column.kind == "categorical" else set())  # a null that `unlisted` allows
        if column.kind == "datetime":  # whole seconds may fall below the cell they were drawn in
            assert (np.abs(again.astype(int) - codes[codec.attribute]) <= codec.size // 40 + 2).mean() > 0.5
        else:
            assert (again == codes[codec.attribute]).all()

"""The public request: what is made once, whatever the order of its columns."""

from __future__ import annotations

from privsyn.engine.request import Request
from tests.support.specs import make_spec


def test_a_request_makes_each_columns_codec_once_whatever_its_order() -> None:
    request = Request(make_spec())
    ordered = request.order_columns(tuple(reversed(request.spec.released_columns)))
    assert ordered.encoding.domain.attributes == tuple(reversed(request.encoding.domain.attributes))
    assert {id(codec) for codec in ordered.encoding.codecs} == {id(codec) for codec in request.encoding.codecs}
    anew = Request(request.spec, ordered.column_order).encoding
    assert [codec.labels() for codec in anew.codecs] == [codec.labels() for codec in ordered.encoding.codecs]
    assert ordered.order_columns(("age",)).column_order == ordered.column_order

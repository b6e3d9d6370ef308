"""The public request: what is made once, whatever the order of its columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privsyn.engine.request import Request
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from tests.support.specs import make_spec
from tests.unit.engine.test_public_knowledge import totals


def test_a_request_makes_each_columns_codec_once_whatever_its_order() -> None:
    request = Request(make_spec())
    ordered = request.order_columns(tuple(reversed(request.spec.released_columns)))
    assert ordered.encoding.domain.attributes == tuple(reversed(request.encoding.domain.attributes))
    assert {id(codec) for codec in ordered.encoding.codecs} == {id(codec) for codec in request.encoding.codecs}
    anew = Request(request.spec, ordered.column_order).encoding
    assert [codec.labels() for codec in anew.codecs] == [codec.labels() for codec in ordered.encoding.codecs]
    assert ordered.order_columns(("age",)).column_order == ordered.column_order


def test_a_restricted_request_has_what_was_made_and_answers_for_its_parts_alone() -> None:
    request = Request(make_spec(**totals("region")))
    step = request.restrict([KnowledgePart.PRIOR])
    assert step.encoding is request.encoding and step.spec is request.spec
    assert request.public.totals is not None
    for restricted in (step, step.order_columns(tuple(reversed(request.spec.released_columns)))):
        with pytest.raises(TypeError, match="does not declare that it reads"):
            _ = restricted.public.totals
    assert step.restrict([KnowledgePart.TOTALS]).public.totals is not None


def test_another_spec_has_codecs_of_its_own() -> None:
    request = Request(make_spec())
    same, fewer = request.restrict(()), make_spec({"age": {"kind": "integer", "min": 0, "max": 9}})
    assert replace(same, spec=fewer).encoding.domain.attributes == ("age",)
    assert replace(same, threads=2).encoding is request.encoding

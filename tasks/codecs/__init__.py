"""Codecs: source columns <-> integer codes, by the public spec alone.

``base`` says what a codec is; ``categories`` and ``ordered`` hold one a kind of column; ``encoding_plan`` makes
them from the spec; ``parsing`` reads any value without ever raising.
"""

from tasks.codecs.base import Codec, Fill
from tasks.codecs.categories import BooleanCodec, CategoricalCodec
from tasks.codecs.encoding_plan import EncodingPlan, plan
from tasks.codecs.ordered import DatetimeCodec, IntegerCodec, NumberCodec

__all__ = [
    "BooleanCodec",
    "CategoricalCodec",
    "Codec",
    "DatetimeCodec",
    "EncodingPlan",
    "Fill",
    "IntegerCodec",
    "NumberCodec",
    "plan",
]

"""Codecs: source columns <-> integer codes, by the public spec alone.

Belongs here: the codec interface (``codec``) and one codec per kind of column (``categories``, ``numbers``,
``dates_and_times``).  The last two share ``ordered`` and ``cells``.  The codecs of a release (``encoding_plan``) and
total parsers for any value (``parsing``) belong here too.  Does not belong here: anything that looks at more than one
row at a time, or chooses bins or values from data.
"""

from privsyn.tasks.codecs.categories import BooleanCodec, CategoricalCodec
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.dates_and_times import DateCodec, DatetimeCodec, TimeCodec
from privsyn.tasks.codecs.encoding_plan import (
    ColumnCodecs,
    EncodingPlan,
    arrange_codecs,
    find_two_celled_columns,
    plan,
    plan_every_column,
)
from privsyn.tasks.codecs.numbers import IntegerCodec, NumberCodec

__all__ = [
    "BooleanCodec",
    "CategoricalCodec",
    "Codec",
    "ColumnCodecs",
    "DateCodec",
    "DatetimeCodec",
    "EncodingPlan",
    "IntegerCodec",
    "NumberCodec",
    "TimeCodec",
    "arrange_codecs",
    "find_two_celled_columns",
    "plan",
    "plan_every_column",
]

"""How CSV files are written: records, and their fields."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel

USUAL_NULLS = (
    *("", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Texts that R and pandas read or write as null."""

_ONE_BYTE = re.compile(r"iso8859-[0-9]+|cp125[0-8]|cp437|cp85[0-9]|cp86[0-9]|koi8-[ru]|mac-[a-z]+")
"""Python's names of encodings with one byte per character, in which no byte can hide or make a line break."""


class CsvOptions(FrozenModel):
    """How CSV files are read."""

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset({"delimiter", "decimal", "thousands", "encoding", "quote"})

    line_breaks: bool = Field(
        default=False,
        description="Allow line breaks in quotation marks; the promise then needs every quotation mark closed "
        "(docs/operations/limits.md).",
    )
    delimiter: str | None = Field(
        default=None,
        description="Character between fields, such as `;`. Default: a comma, or a tab in .tsv files.",
    )
    decimal: Literal[".", ","] = Field(default=".", description="Decimal mark of numbers.")
    thousands: Literal["", ".", ",", " ", "'", "_"] = Field(
        default="", description="Mark between groups of three digits; empty: none."
    )
    encoding: str = Field(
        default="utf-8",
        description="`utf-8`, or an encoding of one byte a character, such as `latin-1` or `cp1252`.",
    )
    quote: Literal['"', "'", ""] = Field(default='"', description="Quotation mark; empty: none.")

    @field_validator("delimiter")
    @classmethod
    def _check_delimiter(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[\t -~]", value):
            raise FieldError("`delimiter` must be one character of ASCII", 'Write one such as ";", or "\\t" for a tab')
        if value is not None and re.fullmatch(r"[A-Za-z0-9.+-]", value):
            raise FieldError("`delimiter` cannot be part of a number or word", 'Write one such as ";"')
        return value

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str) -> str:
        try:
            name = codecs.lookup(value).name
        except (LookupError, ValueError):
            raise FieldError(f"`encoding` ({value[:40]!r}) is not known", "Write utf-8, latin-1 or cp1252") from None
        if name == "utf-8":
            return "utf-8"
        if not _ONE_BYTE.fullmatch(name) or bytes(range(128)).decode(name, "replace").encode() != bytes(range(128)):
            raise FieldError(
                f"in the encoding {value[:40]!r} one damaged byte could change how other records are read",
                "Save the file as UTF-8, or as an encoding of one byte a character such as cp1252",
            )
        return name

    @model_validator(mode="after")
    def _check_marks(self) -> CsvOptions:
        if self.decimal == self.thousands:
            raise FieldError("`decimal` and `thousands` are the same mark", "Change one")
        if self.delimiter is not None and self.delimiter == self.quote:
            raise FieldError("`delimiter` and `quote` are the same mark", "Change one")
        return self

    @property
    def plain_numbers(self) -> bool:
        """Whether numbers are written as this program writes them."""
        return self.decimal == "." and not self.thousands


def check_csv_texts(csv: CsvOptions, columns: Mapping[str, Any]) -> None:
    """Raise FieldError for a column whose name or values cannot be written to CSV with these options.

    columns: the released ones, whose texts are in their ``values``.
    """
    marks = (csv.delimiter or ",", "\r", "\n")
    for name, column in columns.items():
        for text in (name, *(v for v in getattr(column, "values", ()) if isinstance(v, str))):
            if text.encode(csv.encoding, "replace").decode(csv.encoding) != text:
                raise FieldError(
                    f"{name!r} has a text that {csv.encoding} cannot encode, and `like: source` writes CSV files in it",
                    "Take the field out, or correct `csv.encoding`",
                    ("like",),
                )
            if not csv.quote and any(mark in text for mark in marks):
                raise FieldError(
                    f"{name!r} has a text with a delimiter or a line break, and `csv.quote` is empty",
                    "Take the field out, or name a quotation mark",
                    ("like",),
                )

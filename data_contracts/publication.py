"""What a publisher says about a release, and its file formats: public text, not part of the request.

A change here re-runs only the publishing.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal

from pydantic import Field, field_validator

from privsyn.data_contracts.frozen_model import FieldError, FrozenModel

Format = Literal["parquet", "csv"]

COLUMN_WORDS = frozenset({"description", "unit"})
"""Fields of a column that only the released folder uses."""

COLUMN_WRITING = frozenset({"type", "decimals", "resolution"})
"""Fields of a column for writing released values; the private rows are encoded without them."""

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,63}"
_WEB = re.compile(rf"https?://{_HOST}(?::[0-9]{{1,5}})?(?:[/?#][A-Za-z0-9/?#@:;,.!$&'()*+=~_%-]*)?")
_MAIL = re.compile(rf"[A-Za-z0-9_%+-]+(?:\.[A-Za-z0-9_%+-]+)*@{_HOST}")
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")


class About(FrozenModel):
    """Who publishes the release, and what for.  Every field is public and optional."""

    title: str = Field(default="", max_length=200, description="Title of the synthetic table.")
    description: str = Field(default="", max_length=10_000, description="What the table is about.")
    licence: str = Field(
        default="",
        max_length=300,
        description="Licence: an SPDX identifier such as CC-BY-4.0, or a web address.",
    )
    publisher: str = Field(default="", max_length=200, description="Organization or person who publishes it.")
    publisher_type: Literal["", "Government", "Industry", "Nonprofit"] = Field(
        default="", description="Kind of publisher, in the words of the OpenDP deployments registry."
    )
    contact: str = Field(default="", max_length=300, description="Mail or web address for questions.")
    homepage: str = Field(default="", max_length=500, description="Web address of the release.")
    keywords: tuple[str, ...] = Field(default=(), max_length=50, description="Search words for catalogues.")
    published: dt.date | None = Field(default=None, description="Day of publication, such as 2026-11-21.")
    source: str = Field(default="", max_length=1_000, description="Public name of the private data.")
    source_url: str = Field(default="", max_length=500, description="Web page about the private data.")
    intended_use: str = Field(default="", max_length=5_000, description="What the release is for.")
    justification: str = Field(
        default="",
        max_length=5_000,
        description="Why this epsilon, delta and unit of protection.",
    )
    region: str = Field(default="", max_length=300, description="Where the data is from, or whose law applies.")
    sector: Literal["", "Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] = Field(
        default="", description="Sector, in the words of the OpenDP deployments registry."
    )

    @field_validator("homepage", "source_url")
    @classmethod
    def _check_addresses(cls, value: str) -> str:
        if value and not _WEB.fullmatch(value):
            raise FieldError("is not a web address", "Write one that begins with https:// or http://")
        return value

    @field_validator("contact")
    @classmethod
    def _check_contact(cls, value: str) -> str:
        if value and not (_WEB.fullmatch(value) or _MAIL.fullmatch(value)):
            raise FieldError("is neither a mail nor a web address", "Write name@example.org or https://example.org")
        return value

    @field_validator("licence")
    @classmethod
    def _check_licence(cls, value: str) -> str:
        if value and not (_WEB.fullmatch(value) or _SPDX.fullmatch(value)):
            raise FieldError("is neither an SPDX identifier nor a web address", "Write, for example, CC-BY-4.0")
        return value

    @field_validator("keywords")
    @classmethod
    def _check_keywords(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not word.strip() or len(word) > 100 for word in value):
            raise FieldError("a keyword is empty or longer than 100 characters", "Shorten or drop it")
        return value

    @field_validator("published", mode="before")
    @classmethod
    def _check_day(cls, value: object) -> object:
        if isinstance(value, dt.datetime) or not isinstance(value, dt.date | str | None):
            raise FieldError("is not a day", "Write one such as 2026-11-21")
        return value


def check_known_formats(formats: tuple[Format, ...]) -> tuple[Format, ...]:
    """Return each format once, Parquet first; FieldError without Parquet."""
    if "parquet" not in formats:
        raise FieldError("`parquet` is missing", "Add it, since the other files are made from it")
    return ("parquet", *(f for f in dict.fromkeys(formats) if f != "parquet"))

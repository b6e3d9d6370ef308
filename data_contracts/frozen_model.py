"""The base of every spec model: immutable, strict about unknown fields, shown as a form; and its validators' error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from privsyn.data_contracts.form import Schema, explain, write_form_text
from privsyn.data_contracts.unicode import is_unicode


class FieldError(ValueError):
    """A value that a model refuses.

    ``problem`` says what is wrong and ``cure`` what to do, neither with a full stop.  ``place`` is the field that the
    error is about, relative to the field or model whose validator raises it; empty for that field itself.
    """

    def __init__(self, problem: str, cure: str = "", place: tuple[str | int, ...] = ()) -> None:
        self.problem, self.cure, self.place = problem, cure, place
        super().__init__(f"{problem}. {cure}" if cure else problem)


@cache
def _find_numeric_types(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields with numbers, or lists or mappings of numbers, and without booleans."""
    parts_of = {name: set(_iterate_types(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, parts in parts_of.items() if parts & {int, float} and bool not in parts)


def _iterate_types(annotation: Any) -> Iterator[Any]:
    """Yield the types in an annotation; choices of a ``Literal`` are not types."""
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    yield from chain.from_iterable(map(_iterate_types, parts)) if parts else (annotation,)


def _refuse_booleans(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return [_refuse_booleans(item) for item in value]
    return {k: _refuse_booleans(v) for k, v in value.items()} if isinstance(value, dict) else value


class FrozenModel(BaseModel):
    """Base of every model of the spec: immutable, and unknown fields are refused.

    ``OMITTED_AT_DEFAULT``: fields that are not written where they have their defaults.  Manifests and keys of earlier
    versions do not know them, or the ledger fills them in.
    """

    OMITTED_AT_DEFAULT: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_booleans_as_numbers(cls, content: Any) -> Any:
        """Turn a boolean in a number's place into text, which is refused; otherwise true would become 1."""
        if not isinstance(content, Mapping):
            return content
        numeric = _find_numeric_types(cls)
        return {name: _refuse_booleans(value) if name in numeric else value for name, value in content.items()}

    @field_validator("*", mode="after")
    @classmethod
    def _check_characters(cls, value: Any) -> Any:
        if not is_unicode(value):
            raise FieldError(
                "holds half a character (a lone surrogate), which no file can hold", "Write the whole character"
            )
        return value

    @model_serializer(mode="wrap")
    def _serialize(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        return self.leave_out_unused(handler)

    def leave_out_unused(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return what is written: all fields except fields in OMITTED_AT_DEFAULT that have their defaults."""
        fields, content = type(self).model_fields, handler(self)
        unused = {
            name for name in self.OMITTED_AT_DEFAULT & fields.keys() if getattr(self, name) == fields[name].default
        }
        return {name: value for name, value in content.items() if name not in unused}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the JSON schema, with every limit in words, for the run form (form.py)."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        if "description" in resolved:  # the model's docstring
            resolved["description"] = write_form_text(resolved["description"])
        explain(resolved.get("properties", {}))
        return schema


class ResultModel(BaseModel):
    """A frozen model that is also its JSON file: unknown fields, NaN and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PrivateResult(ResultModel):
    """A result that is a function of private rows: it prints no figure, so that none gets into a log or a notebook."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: PRIVATE>"

    __str__ = __repr__

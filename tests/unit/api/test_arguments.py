"""Wrong types of arguments of the public functions: each is a RequestError that names it, and spends nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.answers.questions import Questions
from privsyn.base.arguments import KINDS, _check
from privsyn.base.errors import RequestError
from privsyn.ledgers.ledger import Ledger
from tests.support.specs import COLUMNS, make_spec, people

WRONG: dict[str, Any] = {
    "int": 3,
    "float": 0.5,
    "text": "nowhere",
    "bytes": b"x",
    "None": None,
    "True": True,
    "list": [],
    "list of int": [3],
    "list of text": ["x"],
    "list of None": [None],
    "set": {1},
    "dict": {},
    "object": object(),
    "class": int,
    "function": lambda: 1,
    "nan": float("nan"),
    "huge": 10**400,
    "complex": 1j,
    "empty text": "",
    "null character": "a\0b",
}
NUMBERS, WHOLE = {"int", "float", "nan"}, {"int"}
FITTING = {
    "a path": {"text"},
    "a release, its name or its folder": {"text"},
    "text": {"text", "empty text", "null character"},
    "a whole number": {"int", "huge"},
    "a number": NUMBERS,
    "True or False": {"True"},
    "a mapping": {"dict"},
    "a list of numbers": {"list", "list of int", "set"},
    "a list of texts": {"list", "list of text"},
    "a list of paths": {"list", "list of text"},
    "a list of tables or paths": {"list", "list of int", "list of text", "set"},
}
"""Kind -> the values above that are of it; what they say is for the function to judge."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: value for name in privsyn.__all__ if inspect.isfunction(value := getattr(privsyn, name))
}
METHODS: dict[str, Callable[..., Any]] = {
    "LedgerView.show": privsyn.LedgerView.show,
    "LedgerView.entries": privsyn.LedgerView.entries,
    "LedgerView.verify": privsyn.LedgerView.verify,
    "LedgerView.summaries": privsyn.LedgerView.summaries,
    "LedgerView.as_json": privsyn.LedgerView.as_json,
    "LedgerView.opened": privsyn.LedgerView.opened,
    "SpecDraft.save": privsyn.SpecDraft.save,
}
ALL = FUNCTIONS | METHODS


def cases() -> Iterator[Any]:
    """Every argument of every function, with the values that are of another type."""
    for name, function in ALL.items():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name == "self":
                continue
            annotation = str(parameter.annotation)
            kind = KINDS[annotation.removesuffix(" | None")]
            fitting = FITTING[kind.words] if kind else {"text", "None"}
            fitting = fitting | ({"None"} if annotation.endswith("| None") else set())
            wrong = [value for label, value in WRONG.items() if label not in fitting]
            yield pytest.param(function, parameter.name, wrong, id=f"{name}.{parameter.name}")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Right values of the arguments that a function must be given."""
    folder = tmp_path_factory.mktemp("given")
    table = people(100).select(["age", "region"])
    pq.write_table(table, folder / "people.parquet")
    spec = make_spec({name: COLUMNS[name] for name in table.column_names}, data=str(folder / "people.parquet"))
    return {
        "data": str(folder / "people.parquet"),
        "spec": spec.model_dump(mode="json", exclude_defaults=True),
        "release": "people-00000000",
        "rows": 100,
        "epsilon": 0.5,
        "dataset": "people",
        "path": str(folder / "new.yaml"),
        "self": None,
    }


def call(function: Callable[..., Any], given: dict[str, Any], **changed: Any) -> Any:
    needed = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    values = {name: given[name] for name in needed} | changed
    if "self" not in values:
        return function(**values)
    view = privsyn.ledger() if "LedgerView" in function.__qualname__ else privsyn.example()[1]
    return function(view, **{name: value for name, value in values.items() if name != "self"})


@pytest.mark.parametrize(("function", "name", "wrong"), list(cases()))
def test_a_wrong_type_is_a_request_error_and_nothing_happens(
    function: Callable[..., Any], name: str, wrong: Sequence[Any], given: dict[str, Any], places: Path
) -> None:
    before = sorted(path.name for path in places.iterdir())
    annotation = str(inspect.signature(function).parameters[name].annotation).removesuffix(" | None")
    assert wrong
    for value in wrong:
        with pytest.raises(privsyn.RequestError) as refused:
            call(function, given, **{name: value})
        if KINDS[annotation] is not None:
            assert str(refused.value).startswith(f"{name} must be "), refused.value
            assert f"Write for example {name}=" in str(refused.value)
            assert sorted(path.name for path in places.iterdir()) == before
    ledger = places / "ledger.sqlite"
    assert not ledger.exists() or Ledger(ledger).entries() == []


def test_every_argument_of_every_public_function_is_looked_at() -> None:
    for name, function in ALL.items():
        assert not inspect.signature(function).parameters or hasattr(function, "__wrapped__"), name
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.name == "self" or str(parameter.annotation).removesuffix(" | None") in KINDS, name


@pytest.mark.parametrize(
    ("annotation", "value", "taken"),
    [
        ("float", np.float32(0.5), np.float32(0.5)),
        ("float", np.int64(2), np.int64(2)),
        ("float", Fraction(1, 2), Fraction(1, 2)),
        ("int", np.int64(2), np.int64(2)),
        ("bool", np.True_, np.True_),
        ("Sequence[float] | None", np.array([0.5, 1.0]), (0.5, 1.0)),
        ("Sequence[float] | None", range(1, 3), (1, 2)),
        ("Sequence[str]", (name for name in ("a", "b")), ("a", "b")),
        ("Sequence[str] | Literal['all'] | None", "all", "all"),
        ("str | Path", Path("x"), Path("x")),
        ("str | Path | None", None, None),
    ],
)
def test_numpy_s_numbers_and_any_list_are_taken(annotation: str, value: Any, taken: Any) -> None:
    assert _check("argument", annotation, value) == taken


def test_a_missing_or_an_unknown_argument_is_python_s_own_error() -> None:
    with pytest.raises(TypeError, match="spec"):
        privsyn.release(None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="speck"):
        privsyn.ledger(speck=3)  # type: ignore[call-arg]


def questions() -> Iterator[Any]:
    """Every argument of every question to a release, but the release that `compare` takes."""
    for name, function in vars(Questions).items():
        if inspect.isfunction(function) and not name.startswith("_") and name != "compare":
            for parameter in list(inspect.signature(function).parameters.values())[1:]:
                yield pytest.param(function, parameter, id=f"{name}.{parameter.name}")


@pytest.mark.parametrize(("function", "parameter"), list(questions()))
def test_a_question_says_which_of_its_arguments_is_of_another_type(
    function: Callable[..., Any], parameter: inspect.Parameter
) -> None:
    release = None  # it is not asked
    given = {"self": release, "what": "age", "column": "age", "formula": "age ~ pay", "function": len}
    several = parameter.kind is parameter.VAR_POSITIONAL
    needed = {n: given[n] for n in inspect.signature(function).parameters if n in given and not several}
    for wrong in (object(), [object()], b"x"):
        with pytest.raises(RequestError, match=rf"^{parameter.name} must be .*, not .*\. Write for example"):
            function(release, wrong) if several else function(**needed | {parameter.name: wrong})


def test_an_argument_that_has_no_name_is_shown_without_one() -> None:
    with pytest.raises(RequestError, match=r"^by must be text, not list. Write for example 'name'"):
        Questions.count(None, ["sex"])  # type: ignore[arg-type]


def test_a_text_in_a_number_s_place_is_called_a_text() -> None:
    with pytest.raises(RequestError, match=r"^epsilon must be a number, not str"):
        privsyn.improve("people-00000000", "much")  # type: ignore[arg-type]

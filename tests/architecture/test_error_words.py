"""Errors name fields and actions of the models, and every surface has words for each that the code can name.

The code is walked for what an error can name: the field of an error, or of a function that takes one for its errors,
and what :func:`mention` and :func:`refer_to_action` are called with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from typer.main import get_command

from privsyn import cli
from privsyn.base.settings import Settings
from privsyn.base.wording import API, REQUESTS, Vocabulary
from privsyn.cli.common import COMMAND_LINE
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec
from privsyn.flows.budget import budget_report
from privsyn.flows.compare import compare
from privsyn.flows.evaluate import evaluate
from privsyn.flows.private_errors import FORM
from privsyn.flows.release import release
from privsyn.flows.schedule import scheduled_release
from tests.architecture.test_architecture import MODULES
from tests.support.places import ROOT

VOCABULARIES = {"command line": COMMAND_LINE, "form": FORM, "API": API}
OWN_NAMES = re.compile(r"PREFECT_[A-Z_]+|PRIVSYN_NOTIFY")
"""Variables of Prefect and of the server's set-up: no field of a model, and of one name on every surface."""
OPTION = re.compile(r"(^|[\s(`'\"])--[a-z]")
ERROR_FIELD = 2
"""Position of the field among the arguments of an error."""
WITHOUT_A_FIELD = ("FieldError", "ContractError")
"""Errors whose third argument is another."""


@dataclass
class Named:
    """What a module's errors can name, and where it stands; ``unknown``: what could not be read off the code."""

    fields: dict[str, str] = field(default_factory=dict)
    actions: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def takers(trees: list[ast.Module]) -> dict[str, int]:
    """Function that names a field in its errors -> position of its parameter ``field``, without ``self``."""
    found = {"about": 0}
    for tree in trees:
        imported = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
        if not imported & {"privsyn.base.errors", "privsyn.base.wording"}:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in node.args.args if a.arg not in ("self", "cls")]
                if "field" in names and all(a.arg != "field" or _is_text(a) for a in node.args.args):
                    found[node.name] = names.index("field")
    return found


def _is_text(argument: ast.arg) -> bool:
    return argument.annotation is not None and ast.unparse(argument.annotation) == "str"


def named_in(tree: ast.Module, where: str, functions: dict[str, int]) -> Named:
    """What the calls of one module name."""
    found = Named()
    constants = dict(_constants(tree))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        place = f"{where}:{call.lineno}"
        if name in ("mention", "refer_to_action"):
            into = found.fields if name == "mention" else found.actions
            _note(call.args[0], constants, into, found.unknown, place)
        of_an_error = name.endswith("Error") and name not in WITHOUT_A_FIELD
        position = ERROR_FIELD if of_an_error else functions.get(name)
        given = [k.value for k in call.keywords if k.arg == "field"]  # a partial's too
        if position is not None and len(call.args) > position:
            given.append(call.args[position])
        for value in given:
            _note(value, constants, found.fields, found.unknown, place)
        if name == "about" and len(call.args) > 1 and isinstance(call.args[1], ast.Dict):
            for part in (*call.args[1].keys, *call.args[1].values):
                _note(part, constants, found.fields, found.unknown, place)
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names, values = node.targets[0], node.value
            pairs = (
                zip(names.elts, values.elts, strict=True)
                if isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple)
                else [(names, values)]
            )
            for target, value in pairs:
                if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield target.id, value.value


def _note(value: Any, constants: dict[str, str], into: dict[str, str], unknown: list[str], place: str) -> None:
    """Note a literal or a module's constant; other expressions pass on what was named, and noted, elsewhere."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        into[value.value] = place
    elif isinstance(value, ast.Name) and value.id in constants:
        into[constants[value.id]] = place
    elif isinstance(value, ast.JoinedStr):
        start = value.values[0]
        known = ("settings", "columns", "rules[", "totals[", "tables")
        if not (isinstance(start, ast.Constant) and str(start.value).partition(".")[0] in known):
            unknown.append(place)


def is_of_a_file(name: str) -> bool:
    """Whether the spec, an itemset spec, or an evaluation's settings have such a field."""
    return any(_has(model, name.split(".")) for model in (ReleaseSpec, EvaluationSpec, ItemsetSpec))


def _has(model: type[BaseModel], parts: list[str]) -> bool:
    if parts[0] not in model.model_fields:
        return False
    annotation = model.model_fields[parts[0]].annotation
    inner = [m for m in (annotation, *get_args(annotation)) if isinstance(m, type) and issubclass(m, BaseModel)]
    return len(parts) == 1 or any(_has(m, parts[1:]) for m in inner)


def is_a_command_of_an_extra(where: str) -> bool:
    """Whether a module is the command line of an extra."""
    return where.startswith("privsyn/extras/") and where.endswith("/command.py")


def without_words(named: Named, vocabularies: dict[str, Vocabulary], *, options: bool, own_names: bool) -> list[str]:
    """What a module names that not every vocabulary has a word for; ``options``: it may name the command line's."""
    wrong = [f"{place}: not to be read off the code" for place in named.unknown]
    for name, place in named.fields.items():
        fine = name == "" or is_of_a_file(name)
        fine = fine or (options and name.startswith("--")) or (own_names and OWN_NAMES.fullmatch(name) is not None)
        if not fine:
            wrong += [f"{place}: {name} ({v})" for v, words in vocabularies.items() if name not in words.fields]
    for name, place in named.actions.items():
        wrong += [f"{place}: {name} ({v})" for v, words in vocabularies.items() if name not in words.actions]
    return wrong


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Every module, parsed."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


def test_every_surface_has_words_for_all_that_an_error_can_name(trees: dict[str, ast.Module]) -> None:
    functions = takers(list(trees.values()))
    wrong, named = [], set()
    for where, tree in trees.items():
        found = named_in(tree, where, functions)
        named |= {*found.fields, *found.actions}
        wrong += without_words(
            found,
            VOCABULARIES,
            options=where.startswith("privsyn/cli/") or is_a_command_of_an_extra(where),
            own_names=where.startswith("privsyn/server/"),
        )
    assert wrong == []
    words = {*API.fields, *API.actions}
    idle = {name for name in words - named if not name.startswith("settings.")}
    assert idle == set(), "words for what no error names"


@pytest.mark.parametrize(
    "wrong",
    [
        'raise RequestError("a", "b", "release.frehs")',
        'raise LedgerError("a", "Set " + mention("settings.legder"))',
        'raise LedgerError("a", refer_to_action("look_it_up"))',
        'raise RequestError("a", "b", "--fresh")',
        'raise RequestError("a", "b", "privacy.epsilom")',
        'raise RequestError("a", "b", field="RELEASE")',
        'FIELD = "RUN"\nraise RequestError("a", "b", FIELD)',
        'expanded(path, "--data")',
        'raise error.about("evaluate.data", {"release.data": "evaluate.dta"})',
        'raise RequestError("a", "b", f"--{name}")',
    ],
)
def test_a_placeholder_without_a_word_fails(wrong: str) -> None:
    found = named_in(ast.parse(wrong), "here", {"expanded": 1, "about": 0})
    assert without_words(found, VOCABULARIES, options=False, own_names=False)


def test_only_the_command_line_speaks_of_its_options(trees: dict[str, ast.Module]) -> None:
    found = []
    for where, tree in trees.items():
        if where.startswith(("flows/", "privsyn/cli/", "privsyn/server/")) or is_a_command_of_an_extra(where):
            continue
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
            if isinstance(text, str) and OPTION.search(text):
                found.append(f"{where}:{node.lineno}: {text}")
    assert found == []


def test_no_error_of_the_engine_has_a_variable_or_a_command_in_its_text(trees: dict[str, ast.Module]) -> None:
    found = []
    for where, tree in trees.items():
        if where.startswith(("flows/", "privsyn/cli/", "privsyn/server/")) or is_a_command_of_an_extra(where):
            continue
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id.endswith("Error"):
                for node in ast.walk(call):
                    text = node.value if isinstance(node, ast.Constant) else None
                    if isinstance(text, str) and re.search(r"PRIVSYN_|`privsyn ", text):
                        found.append(f"{where}:{node.lineno}: {text}")
    assert found == []


def test_the_vocabularies_name_the_same() -> None:
    for words in (COMMAND_LINE, FORM):
        assert set(words.fields) == set(API.fields)
        assert set(words.actions) == set(API.actions)
    assert {name.partition(".")[0] for name in API.fields} == REQUESTS
    both = REQUESTS & {*ReleaseSpec.model_fields, *EvaluationSpec.model_fields}
    assert both <= {"query"}  # the spec's has no fields of its own: what has a dot is the request's
    assert {f"settings.{name}" for name in Settings.model_fields} <= set(API.fields)


def test_the_command_line_s_words_are_its_own() -> None:
    def commands(command: Any) -> Iterator[Any]:
        yield command
        for inner in getattr(command, "commands", {}).values():
            yield from commands(inner)

    parameters = [p for c in commands(get_command(cli.app)) for p in c.params]
    options = {o for p in parameters for o in p.opts}
    arguments = {p.metavar or p.name.upper() for p in parameters if p.param_type_name == "argument"}
    for name, words in COMMAND_LINE.fields.items():
        known = {*options, *(a.strip("[]") for a in arguments), "PRIVSYN_" + name.partition(".")[2].upper()}
        used = re.findall(r"--[a-z-]+|[A-Z_]{3,}", words)
        assert set(used) <= known, name
        assert used or words in ("delta", "time_zone"), name


def test_the_form_s_words_are_its_titles() -> None:
    flows = {
        "release": (release, scheduled_release),
        "evaluate": (evaluate,),
        "comparison": (compare,),
        "ledger": (budget_report,),
    }
    titled = 0
    for name, words in FORM.fields.items():
        found = re.fullmatch(r"the field (.+) of the run form", words)
        if found:
            titled += 1
            first = found[1].partition(" > ")[0].lower().replace(" ", "_")
            request = name.partition(".")[0]
            assert any(first in signature(flow.fn).parameters for flow in flows[request]), name
    assert titled

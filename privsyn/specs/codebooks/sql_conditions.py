"""Conditions of SQL in the language of rules."""

from __future__ import annotations

from typing import Any


def translate_condition(node: Any, exp: Any) -> str:
    """Return the text of a condition or of a part of one, empty if a part has no place in rules.

    ``exp``: sqlglot's nodes.
    """
    match node:
        case exp.Paren():
            return _join_conditions("({})", [node.this], exp)
        case exp.Column():
            return f"`{node.name}`"
        case exp.Null():
            return "null"
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Literal():
            return repr(str(node.this)) if node.is_string else str(node.this)
        case exp.Cast() | exp.TsOrDsToDate():
            return translate_condition(node.this, exp)
        case exp.Not(this=exp.Is(this=inner, expression=exp.Null())):
            return _join_conditions("{} is not null", [inner], exp)
        case exp.Not() | exp.Neg():
            return _join_conditions("not ({})" if isinstance(node, exp.Not) else "-{}", [node.this], exp)
        case exp.Is(expression=exp.Null()):
            return _join_conditions("{} is null", [node.this], exp)
        case exp.In() if node.expressions:
            listed = _join_conditions(", ".join(["{}"] * len(node.expressions)), node.expressions, exp)
            one = translate_condition(node.this, exp)
            return f"{one} in [{listed}]" if one and listed else ""
        case exp.Between():
            return _join_conditions("{} <= {} <= {}", [node.args["low"], node.this, node.args["high"]], exp)
    for kind, sign in _SIGNS.items():
        if type(node).__name__ == kind:
            return _join_conditions(f"{{}} {sign} {{}}", [node.this, node.expression], exp)
    return ""


_SIGNS = {
    "And": "and",
    "Or": "or",
    "EQ": "==",
    "NEQ": "!=",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
}


def _join_conditions(form: str, nodes: list[Any], exp: Any) -> str:
    parts = [translate_condition(node, exp) for node in nodes]
    return form.format(*parts) if all(parts) else ""

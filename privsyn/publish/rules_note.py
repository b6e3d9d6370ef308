"""What the note of a release says of its rules."""

from __future__ import annotations

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import Derive, LookupRule, Never, OneOf
from privsyn.publish.markdown import escape_text, format_code


def write_rules_note(spec: ReleaseSpec) -> str:
    """Markdown: every rule, in the spec's order; empty without rules."""
    if not spec.rules:
        return ""
    lines = ["## Rules", "", "Public statements that every row keeps. A column that they compute was not measured.", ""]
    for rule in spec.rules:
        match rule:
            case Never():
                lines.append(f"- never {format_code(rule.never)}")
            case Derive():
                lines += [f"- {escape_text(name)} is {format_code(text)}" for name, text in rule.derive.items()]
            case LookupRule(lookup=lookup):
                lines.append(
                    f"- {_join_names(lookup.to)} by {_join_names(lookup.from_)}: a public table of "
                    f"{len(lookup.rows):,} rows"
                )
            case OneOf():
                many = "at most one" if rule.or_none else "exactly one"
                lines.append(f"- {many} of {_join_names(rule.one_of)} is 1")
    return "\n".join(lines)


def _join_names(columns: tuple[str, ...]) -> str:
    return ", ".join(map(escape_text, columns))

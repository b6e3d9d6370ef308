"""Evaluation settings and metrics in words: what is wrong with a setting, and what the page says of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from privsyn.base.errors import RequestError
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.evaluation.scores import as_markdown
from privsyn.evaluation.settings_file import load_evaluation_spec
from privsyn.specs.yaml_file import parse_yaml
from tests.support.places import ROOT


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("mgd: 3", "mgd (line 1): is `3`, but must be a mapping of fields."),
        ("mgd: {tolerence: 1}", "mgd.tolerence (line 1): is not a field of `mgd`. Did you mean `tolerance`?"),
        ("groups: sex", "groups (line 1): is `sex`, but must be a list. Write `[sex]`, or"),
        ("groups: [1]", "groups[0] (line 1): is `1`, but must be text"),
        ("labels: 3", "labels (line 1): is `3`, but must be `auto` or a list of columns,"),
        ("k: many", "k (line 1): is `many`, but must be a whole number."),
        ("k: true", "k (line 1): is `true`, but must be a whole number."),
        ("k: 9", "k (line 1): is `9`, but must be at most 5."),
        ("pie: {place: a}", "pie.time (line 1): is missing. Add it, or leave out `pie`."),
        ("income: {plce: 1, place: a, sex: b, wage: c}", "income.plce (line 1): is not a field of `income`."),
        ("nist_querie: 3", "nist_querie (line 1): is not a field of the evaluation's settings. Did you mean"),
        ("hierarchies: {}", "hierarchies (line 1): is not a field of the evaluation's settings. Known are seed,"),
        ("mgd: {marginals: [{attributes: []}]}", "mgd.marginals[0].attributes (line 1): is an empty list, but must"),
        ("mgd: {marginals: [3]}", "mgd.marginals[0] (line 1): is `3`, but must be a mapping of fields."),
        (
            "mgd: {marginals: [{attributes: [a], weights: {a: x}}]}",
            "mgd.marginals[0].weights.a (line 1): is `x`, but must be a number or `infinite`.",
        ),
        ("mgd: {hierarchies: {a: {b: 3}}}", "mgd.hierarchies.a.b (line 1): is `3`, but must be a list of labels,"),
        ("mgd: {bins_of_bins: {a: 3}}", "mgd.bins_of_bins.a (line 1): is `3`, but must be a list. Write `[3]`, or"),
        ("analyses: [{kind: mean}]", "analyses[0].kind (line 1): is `mean`, but must be one of 'regression',"),
        ("analyses: [{kind: share}]", "analyses[0] (line 1): a share needs `of`. Add it, such as `of: income == "),
        ("groups: [a, a]", "groups (line 1): names the column 'a' more than once. Correct it,"),
    ],
)
def test_wrong_settings_in_words(tmp_path: Path, text: str, start: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RequestError) as caught:
        load_evaluation_spec(path)
    message = str(caught.value)
    assert message.startswith(start), message
    assert not any(word in message for word in ("input should", "valid tuple", "instance of", "?.")), message


PAGE = ROOT / "docs" / "evaluation.md"


def test_the_page_lists_every_metric_as_it_is() -> None:
    assert as_markdown() in PAGE.read_text(encoding="utf-8")


def test_the_settings_on_the_page_are_valid_and_complete() -> None:
    block = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    content = parse_yaml(block, "evaluation.yaml").content
    assert EvaluationSpec.model_validate(content)
    assert set(content) == set(EvaluationSpec.model_fields)

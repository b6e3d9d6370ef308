"""The metrics' words: in the docs, complete, and not at odds with themselves."""

from __future__ import annotations

from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.evaluation.scores import as_markdown
from privsyn.specs.yaml_file import parse_yaml
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "evaluation.md"


def test_the_page_lists_every_metric_as_it_is() -> None:
    assert as_markdown() in PAGE.read_text(encoding="utf-8")


def test_the_settings_on_the_page_are_valid_and_complete() -> None:
    block = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    content = parse_yaml(block, "evaluation.yaml").content
    assert EvaluationSpec.model_validate(content)
    assert set(content) == set(EvaluationSpec.model_fields)

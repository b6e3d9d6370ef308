"""Bug class 20: timing and memory are outside the promise, and nothing that is released tells of them.

It does not see how long a run takes or how much memory it needs, which is not promised; its release is one table with
the default looks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from privsyn.engine.execute import Run
from privsyn.publish import folder as publish
from privsyn.publish.folder import ReleaseSummary
from tests.support.places import ROOT
from tests.support.releases import few, run
from tests.support.specs import people

Save = Callable[..., str]
PAGE = ROOT / "docs" / "privacy.md"
MEASURED = re.compile(r"second|duration|elapsed|started|finished|timestamp|created|memory|_ms$|^time|_time$")
"""What a field would be called that holds a time or a size in memory."""


def fields(content: Any) -> Iterator[str]:
    """Every name in a JSON object, but those of the spec, which its author chose."""
    if isinstance(content, dict):
        for name, value in content.items():
            if name != "spec":
                yield name
                yield from fields(value)
    elif isinstance(content, list):
        for value in content:
            yield from fields(value)


def measurements(summary: ReleaseSummary) -> list[str]:
    """Fields of the released JSON files that tell of time or memory, and such words with a figure in the note."""
    folder = Path(summary.released)
    named = [name for p in folder.rglob("*.json") for name in fields(json.loads(p.read_text(encoding="utf-8")))]
    assert "epsilon" in named
    note = (folder / "README.md").read_text(encoding="utf-8")
    return [n for n in named if MEASURED.search(n)] + re.findall(r"\d+(?:\.\d+)? ?(?:s|ms|seconds|MB|GB)\b", note)


def test_20_no_run_time_is_released_and_the_page_says_what_is_not_promised(places: Path, save: Save) -> None:
    assert measurements(run(few(save(people(200))))) == []
    not_promised = PAGE.read_text(encoding="utf-8").partition("## What is not promised")[2].partition("\n## ")[0]
    assert "Side channels" in not_promised and "Run time" in not_promised and "memory" in not_promised


def test_20_mutant_the_seconds_of_a_run_in_its_manifest(
    places: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted mutant: the manifest tells how long the run took, which depends on the private table."""
    write = publish.write_manifest

    def with_seconds(shell: Run, folder: Path, rows: int, made: Mapping[str, str]) -> None:
        write(shell, folder, rows, made)
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        (folder / "manifest.json").write_text(json.dumps({**manifest, "seconds": 1.25}), encoding="utf-8")

    monkeypatch.setattr(publish, "write_manifest", with_seconds)
    assert measurements(run(few(save(people(200))))) == ["seconds"]

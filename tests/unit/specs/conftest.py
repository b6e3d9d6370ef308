"""Dictionaries are read in the tests' own process: one for each takes half a second.

The other process has its own tests, in test_dictionary_process.py.
"""

from __future__ import annotations

import pytest

from privsyn.specs import draft
from privsyn.specs.dictionaries import parse_dictionary


@pytest.fixture(autouse=True)
def dictionaries_read_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.path.name.startswith("test_dictionary_process"):
        monkeypatch.setattr(draft, "read_dictionary", parse_dictionary)

"""Where the tests find the repository, the fixtures and, where they are present, the shared tables."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
SHARED = ROOT.parent / "shared" / "data"

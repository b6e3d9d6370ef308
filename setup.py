"""Hand the package index a README that renders there; everything else about the package stands in pyproject.toml.

README.md links to files of the repository by their relative paths, which lead nowhere on an index.  Where
pyproject.toml names the repository (`[project.urls]`, `Source`), links and pictures become absolute, at the tag of this
version; where it names none, links become their text, and pictures with their captions are left out.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]+)\)")
WITH_CAPTION = re.compile(PICTURE.pattern + r"\n+(\*[^*]+\*\n+)?")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def make_readme_for_index(text: str, version: str, source: str = "") -> str:
    """Return the README's text without relative links; `source` is the repository's address, or empty."""
    if not source:
        return LINK.sub(r"\1", WITH_CAPTION.sub("", text))
    at = source.rstrip("/")
    text = PICTURE.sub(rf"![\1]({at}/raw/v{version}/\2)", text)
    return LINK.sub(rf"[\1]({at}/blob/v{version}/\2)", text)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=make_readme_for_index(readme, project["version"], project.get("urls", {}).get("Source", "")),
        long_description_content_type="text/markdown",
    )

"""Hand the package index a README that renders there; everything else about the package stands in pyproject.toml.

README.md links to files of the repository by their relative paths, which lead nowhere on an index.  Where
pyproject.toml names the repository (`[project.urls]`, `Source`), links and pictures become absolute, at the tag of this
version; where it names none, links become their text, and pictures with their captions are left out.

A wheel's bytes follow from the content of its files: no time, no owner's rights and no umask of the build are in it.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).parent
PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]+)\)")
WITH_CAPTION = re.compile(PICTURE.pattern + r"\n+(\*[^*]+\*\n+)?")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")

EPOCH = "315532800"
"""1980-01-01 in seconds, the earliest time that a wheel's archive can hold; SOURCE_DATE_EPOCH goes before."""


class ReproducibleWheel(bdist_wheel):
    """A wheel whose files have one time and the same rights, wherever and whenever it is built."""

    def write_wheelfile(self, *arguments: Any, **named: Any) -> None:
        """Write the last file of the metadata, then give all files of the wheel the same rights."""
        super().write_wheelfile(*arguments, **named)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


def make_readme_for_index(text: str, version: str, source: str = "") -> str:
    """Return the README's text without relative links; `source` is the repository's address, or empty."""
    if not source:
        return LINK.sub(r"\1", WITH_CAPTION.sub("", text))
    at = source.rstrip("/")
    text = PICTURE.sub(rf"![\1]({at}/raw/v{version}/\2)", text)
    return LINK.sub(rf"[\1]({at}/blob/v{version}/\2)", text)


if __name__ == "__main__":
    os.environ.setdefault("SOURCE_DATE_EPOCH", EPOCH)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=make_readme_for_index(readme, project["version"], project.get("urls", {}).get("Source", "")),
        long_description_content_type="text/markdown",
        cmdclass={"bdist_wheel": ReproducibleWheel},
    )

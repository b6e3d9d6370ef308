"""Write Vega-Lite charts as image files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privsyn.base.errors import RequestError
from privsyn.base.registry import need_package


def draw_chart(chart: Mapping[str, Any], format_: str) -> bytes:
    """Return the picture of a chart as ``svg`` or ``png``."""
    with need_package("vl-convert-python", "a picture", "evaluation", ""):
        import vl_convert  # here: it loads slowly

    if format_ == "svg":
        return str(vl_convert.vegalite_to_svg(dict(chart))).encode()
    return bytes(vl_convert.vegalite_to_png(dict(chart), scale=1.5))


def write_picture(chart: Mapping[str, Any], path: Path, field: str) -> None:
    """Write a .png or .svg file.  RequestError about ``field`` for another ending or an unwritable place."""
    ending = path.suffix.lower().removeprefix(".")
    if ending not in ("png", "svg"):
        raise RequestError(f"{path.name!r} ends in neither .png nor .svg", "Choose one of the two", field)
    picture = draw_chart(chart, ending)
    try:
        path.write_bytes(picture)
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror}"
        raise RequestError(problem, "Choose a folder that exists and is writable", field) from None

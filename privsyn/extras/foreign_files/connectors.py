"""What the registry gets for the endings of files of other programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from privsyn.base.places import DataUrl
from privsyn.data_contracts.columns import Column
from privsyn.sources.reader import Connector, Reader, check_file


def _open_arrow(place: DataUrl | Path, columns: Mapping[str, Column] | None) -> Reader:
    from privsyn.extras.foreign_files.arrow_file import ArrowFileReader

    return ArrowFileReader(Path(str(place)))


def _open_statistics(place: DataUrl | Path, columns: Mapping[str, Column] | None) -> Reader:
    from privsyn.extras.foreign_files.statistics_file import StatisticsReader

    return StatisticsReader(Path(str(place)), columns)


def _open_workbook(place: DataUrl | Path, columns: Mapping[str, Column] | None) -> Reader:
    """Return a reader of a sheet, by the path of its workbook or by a URL that says which."""
    from privsyn.extras.foreign_files.workbook import WorkbookReader

    path, options = (place.file, place.options) if isinstance(place, DataUrl) else (place, {})
    if isinstance(place, DataUrl):
        check_file(place)
    return WorkbookReader(path, options.get("sheet"), options.get("header", "1"), all_named=columns is None)


ARROW, STATISTICS, WORKBOOK = map(Connector, (_open_arrow, _open_statistics, _open_workbook))

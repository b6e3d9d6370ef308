"""What the registry gets for the schemes of lakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from privsyn.base.places import DataUrl
from privsyn.data_contracts.columns import Column
from privsyn.extras.lakes.lake import DeltaReader, IcebergReader
from privsyn.sources.reader import Connector, Reader


def _open_table(place: DataUrl | Path, columns: Mapping[str, Column] | None) -> Reader:
    assert isinstance(place, DataUrl)  # noqa: S101 - both are schemes
    return IcebergReader(place) if place.scheme == "iceberg" else DeltaReader(place)


LAKE = Connector(_open_table)

"""Small private records beside the tables: finished steps, run names, kept noise; and the model of each kind.

A record that does not fit its model is damaged.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privsyn.base.errors import PrivsynError
from privsyn.base.places import make_safe_name
from privsyn.data_contracts.publication import Format
from privsyn.data_contracts.tables import NOISY
from privsyn.storage.disk import remove_parts, replace_file, translate_os_errors

Kind = TypeVar("Kind", bound=BaseModel)


class Records:
    """Records of one data set under a private root."""

    def __init__(self, private_root: Path, dataset: str) -> None:
        """Create the folders, mode 0700.  Raises PrivsynError if the disk refuses."""
        self._folder = locate_private_records(private_root, dataset)
        self._noise = Path(private_root).absolute() / "noise" / make_safe_name(dataset, "dataset")
        for folder in (self._folder, self._noise):
            with translate_os_errors(folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove_leftovers(self) -> None:
        """Remove incomplete records of killed runs; the caller holds the data set's lock."""
        for folder in (self._folder, self._noise):
            remove_parts(folder)

    def save(self, name: str, content: dict[str, Any]) -> None:
        """Write the record whole or not at all, unless the same record exists."""
        path = self._locate_record(name)
        with suppress(OSError, ValueError):
            if path.read_text(encoding="utf-8") == _format_json(content):
                return
        write_json(path, content)

    def load(self, name: str) -> dict[str, Any] | None:
        """Return the record, or None.  Raises PrivsynError if it is not a whole JSON object."""
        path = self._locate_record(name)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise self.damaged(name) from error
        if not isinstance(content, dict):
            raise self.damaged(name)
        return content

    def load_as(self, name: str, kind: type[Kind]) -> Kind | None:
        """Return the record as ``kind``, or None.  Raises PrivsynError if it does not fit ``kind``."""
        content = self.load(name)
        try:
            return None if content is None else kind.model_validate(content)
        except ValidationError as error:
            raise self.damaged(name) from error

    def has_any(self, *beginnings: str) -> bool:
        """Return whether there is a record whose name begins with one of ``beginnings``."""
        return any(path.name.startswith(beginnings) for path in self._folder.glob("*.json"))

    def damaged(self, name: str) -> PrivsynError:
        """Return the error for a record that is missing beside later ones, or does not fit its kind."""
        path = self._locate_record(name)
        problem = "cannot be read" if path.exists() else "is missing beside those that are made after it"
        return PrivsynError(f"the private record {path} {problem}", "Restore it from a backup")

    def keep_noise(self, key: str, noise: pa.Table) -> None:
        """Keep the noise of a charge (contract NOISY), with its metadata, until the charge is settled.

        It is as sensitive as the data.
        """
        path = self._locate_noise(key)
        with translate_os_errors(path), replace_file(path) as temporary:
            pq.write_table(noise, temporary, compression="zstd")

    def kept_noise(self, key: str) -> pa.Table | None:
        """Return the noise kept for this charge, or None."""
        path = self._locate_noise(key)
        if not path.exists():
            return None
        with translate_os_errors(path):
            noise = pq.read_table(path, schema=NOISY.schema, partitioning=None)
            return noise.replace_schema_metadata(pq.read_schema(path).metadata)

    def has_noise(self, key: str) -> bool:
        """Return whether noise was kept for this charge, readable or not."""
        return self._locate_noise(key).exists()

    def noise_digest(self, key: str) -> str:
        """Return the SHA-256 (hex) of the noise kept for this charge, as stored.  As private as the noise."""
        path = self._locate_noise(key)
        with translate_os_errors(path):
            return hashlib.sha256(path.read_bytes()).hexdigest()

    def noise_is_damaged(self, key: str) -> bool:
        """Return whether the noise kept for this charge cannot be read: the draw is lost, the charge stands."""
        try:
            self.kept_noise(key)
        except (PrivsynError, pa.ArrowException, OSError):
            return True
        return False

    def discard_noise(self, key: str) -> None:
        """Delete the noise of a settled charge, if there is any."""
        with translate_os_errors(self._locate_noise(key)):
            self._locate_noise(key).unlink(missing_ok=True)

    def _locate_record(self, name: str) -> Path:
        return self._folder / f"{make_safe_name(name)}.json"

    def _locate_noise(self, key: str) -> Path:
        return self._noise / f"{make_safe_name(key)}.parquet"


def locate_private_records(private_root: Path, dataset: str) -> Path:
    """Return the folder of a data set's records, which may not exist."""
    return Path(private_root).absolute() / "records" / make_safe_name(dataset, "dataset")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write readable JSON whole or not at all, readable only by the owner."""
    with translate_os_errors(path), replace_file(path) as temporary:
        temporary.write_text(_format_json(content), encoding="utf-8")


def _format_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def read_note(note: Path) -> dict[str, Any]:
    """Return a run's private note; empty if it cannot be read."""
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


Count = Annotated[int, Field(ge=0)]


class _Record(BaseModel):
    """The base of all kinds; a record with an unknown field is damaged."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RequestRecord(_Record):
    """An earlier request, and whether its last run finished or was refused."""

    dataset: str
    finished: bool


class GenerationRecord(_Record):
    """Record of a request's current generation of noise."""

    generation: Count
    finished: bool
    fresh: bool


class CounterRecord(_Record):
    """The last generation assigned to a table of codes."""

    last: Count


class RunRecord(_Record):
    """The run's public name."""

    run: str


class DataRecord(_Record):
    """The fingerprint of the data with which a period's run began."""

    fingerprint: str


class LedgerRecord(_Record):
    """Record of the ledger that a data set is charged to, and of its history's length.

    Early versions kept only ``created``.
    """

    created: str
    entries: Count = 0
    periods: Count = 0
    marks: Count = 0
    head: str | None = None
    periods_head: str | None = None
    marks_head: str | None = None


class RefusedInput(_Record):
    """A public input that equals a private table."""

    field: str
    last: str
    times: Count


class PublicInputsRecord(_Record):
    """The fingerprints of the public inputs that were compared with the data set's private tables."""

    compared: Annotated[tuple[str, ...], Field(strict=False)] = ()
    refused: dict[str, RefusedInput] = {}


class FormatsRecord(_Record):
    """The formats added to a run's release."""

    formats: list[Format]


class VersionsRecord(_Record):
    """The versions that wrote a released folder's files, in order."""

    files: dict[str, str]
    versions: list[Annotated[tuple[str, str], Field(strict=False)]]

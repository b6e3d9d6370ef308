"""An S3 store of the tests' own on the loopback address, by moto."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTSTESTSTESTS",
    "AWS_SECRET_ACCESS_KEY": "hunter2hunter2",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Bucket:
    """A bucket that is there while the store runs."""

    def __init__(self, server: Any, name: str = "private") -> None:
        from pyarrow import fs

        self.server, self.name = server, name
        host, port = server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self.filesystem = fs.S3FileSystem(endpoint_override=self.endpoint, allow_bucket_creation=True)
        self.filesystem.create_dir(name)

    def write_bytes(self, key: str, content: bytes) -> str:
        """Put an object; its URL."""
        with self.filesystem.open_output_stream(f"{self.name}/{key}", None) as stream:
            stream.write(content)
        return f"s3://{self.name}/{key}"

    def write(self, table: pa.Table, key: str, **options: Any) -> str:
        """Put a table, as Parquet or CSV by the key's ending; its URL."""
        sink = pa.BufferOutputStream()
        (pacsv.write_csv if key.endswith(".csv") else pq.write_table)(table, sink, **options)
        return self.write_bytes(key, sink.getvalue().to_pybytes())

    def upload(self, folder: Path, key: str) -> str:
        """Put the files of a folder; the URL of the folder there."""
        for file in folder.rglob("*"):
            if file.is_file():
                self.write_bytes(f"{key}/{file.relative_to(folder)}", file.read_bytes())
        return f"s3://{self.name}/{key}"

    def list_keys(self, key: str = "") -> list[str]:
        """The keys of the bucket, or of a folder."""
        from pyarrow import fs

        selector = fs.FileSelector(f"{self.name}/{key}".rstrip("/"), recursive=True, allow_not_found=True)
        found = [entry.path for entry in self.filesystem.get_file_info(selector) if entry.is_file]
        return sorted(path.removeprefix(f"{self.name}/") for path in found)


@contextmanager
def serve_bucket() -> Iterator[Bucket]:
    """A store with an empty bucket, which the environment leads to; the test is skipped where moto is not installed."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it has a line for each request
    server.start()
    try:
        with mock.patch.dict(os.environ, CREDENTIALS):
            bucket = Bucket(server)
            os.environ["AWS_ENDPOINT_URL"] = bucket.endpoint
            yield bucket
    finally:
        server.stop()

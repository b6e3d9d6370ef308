"""An SFTP server of the tests' own on the loopback address, which shows one folder, by paramiko."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Server:
    """The server's address, its folder, and how to break its connections."""

    host: str
    folder: Path
    transports: list[Any] = field(default_factory=list)
    reads_left: float = float("inf")

    def url(self, path: str) -> str:
        """The URL of a file in the folder."""
        return f"sftp://steward@{self.host}/{path}"


@contextmanager
def serve_files(folder: Path, home: Path) -> Iterator[Server]:
    """A server of ``folder``; ``home``: the user's folder, which gets a key and ``known_hosts``."""
    paramiko = pytest.importorskip("paramiko")
    ssh = home / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    key, host_key = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(ssh / "id_ecdsa"))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key.get_name()} {host_key.get_base64()}\n")
    server = Server(f"127.0.0.1:{port}", folder)

    class Users(paramiko.ServerInterface):
        def check_auth_publickey(self, username: str, given: Any) -> int:
            known = username == "steward" and given.get_base64() == key.get_base64()
            return int(paramiko.AUTH_SUCCESSFUL if known else paramiko.AUTH_FAILED)

        def check_channel_request(self, kind: str, number: int) -> int:
            return int(paramiko.OPEN_SUCCEEDED)

        def get_allowed_auths(self, username: str) -> str:
            return "publickey"

    class Handle(paramiko.SFTPHandle):
        def read(self, offset: int, length: int) -> Any:
            server.reads_left -= 1
            if server.reads_left < 0:
                for transport in server.transports:
                    transport.close()
                return paramiko.SFTP_FAILURE
            return super().read(offset, length)

        def stat(self) -> Any:
            return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))

    class Files(paramiko.SFTPServerInterface):
        def list_folder(self, path: str) -> Any:
            entries = [(entry, entry.stat()) for entry in self._find(path).iterdir()]
            return [paramiko.SFTPAttributes.from_stat(stat, entry.name) for entry, stat in entries]

        def stat(self, path: str) -> Any:
            found = self._find(path)
            return paramiko.SFTPAttributes.from_stat(found.stat()) if found.exists() else paramiko.SFTP_NO_SUCH_FILE

        lstat = stat

        def open(self, path: str, flags: int, attr: Any) -> Any:
            handle = Handle(flags)
            handle.readfile = self._find(path).open("rb")
            return handle

        def _find(self, path: str) -> Path:
            return folder / path.strip("/")

    def accept() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                transport = paramiko.Transport(connection)
                transport.add_server_key(host_key)
                transport.set_subsystem_handler("sftp", paramiko.SFTPServer, Files)
                with suppress(paramiko.SSHException, EOFError):
                    transport.start_server(server=Users())
                    server.transports.append(transport)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        listener.close()
        for transport in server.transports:
            transport.close()

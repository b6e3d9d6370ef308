"""Files of a server by SFTP, as a pyarrow filesystem over fsspec's client; only known servers are trusted."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from privsyn.base.places import DataUrl
from privsyn.base.registry import need_package

_BLOCK = 1 << 18
_SECONDS = 30


def open_sftp(url: DataUrl) -> Any:
    """Return the filesystem of a URL's server.

    The user comes from the URL or ``~/.ssh/config``, else it is the current user; keys come from the SSH agent and
    ``~/.ssh``.  A server whose key is not in ``known_hosts`` is refused.  Raises RequestError if a package is missing,
    and OSError as pyarrow's filesystems do.
    """
    with need_package("paramiko", "reading SFTP servers", "sftp"):
        import paramiko
        from fsspec.implementations.sftp import SFTPFileSystem
    from pyarrow import fs

    class Server(SFTPFileSystem):
        """fsspec's client, which trusts known servers only and raises the errors of files."""

        cachable = False

        def _connect(self) -> None:
            self.client = paramiko.SSHClient()
            self.client.load_system_host_keys()
            self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
            try:
                self.client.connect(self.host, timeout=_SECONDS, auth_timeout=_SECONDS, **self.ssh_kwargs)
            except (paramiko.AuthenticationException, paramiko.BadHostKeyException):
                raise PermissionError("ACCESS_DENIED") from None
            except paramiko.SSHException as error:
                refused = any(word in str(error) for word in ("known_hosts", "authentication methods"))
                raise PermissionError("ACCESS_DENIED" if refused else "connection") from None
            self.ftp = self.client.open_sftp()
            self.ftp.get_channel().settimeout(_SECONDS)

        def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            return io.BufferedReader(_ServerFile(self.ftp.open(path, mode), paramiko.SSHException), _BLOCK)

    return fs.PyFileSystem(fs.FSSpecHandler(Server(**_find_options(url, paramiko.SSHConfig))))


def _find_options(url: DataUrl, config: Any) -> dict[str, Any]:
    """Return the connection options: the URL's host, port and user, with the host's settings in ``~/.ssh/config``."""
    host, _, port = url.host.partition(":")
    written = Path("~/.ssh/config").expanduser()
    host_options = config.from_path(str(written)).lookup(host) if written.is_file() else {}
    options = {
        "host": host_options.get("hostname", host),
        "port": int(port or host_options.get("port", 22)),
        "username": url.user or host_options.get("user"),
        "key_filename": host_options.get("identityfile"),
    }
    return {name: value for name, value in options.items() if value is not None}


class _ServerFile(io.RawIOBase):
    """A file of the server that raises OSError for a lost connection."""

    def __init__(self, file: Any, failure: type[Exception]) -> None:
        self._file, self._failure = file, failure

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._file.read(len(buffer))
        except (self._failure, EOFError):
            raise ConnectionError("connection lost") from None
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return int(self._file.tell())

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

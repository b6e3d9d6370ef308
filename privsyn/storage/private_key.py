"""The HMAC key of a private root, which is made once and checked at every start.

Every fingerprint and key of a step rests on this key.  Under another one each earlier request looks new, would draw
its noise anew and be charged whole once more, so a folder that holds tables or records never gets a new key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from privsyn.base.errors import PrivsynError
from privsyn.base.wording import mention
from privsyn.storage.disk import remove_parts, replace_file

NAME = ".key"
CHECK = "key-check"
"""The file beside the key by which it is known: an HMAC of a fixed text, which tells nothing of the key."""

_BYTES = 32
_FILLED = ("store", "records", "noise")
_CURE = (
    "Restore the whole private folder from its backup, with the files whose names begin with a dot, or release into "
    "another folder with " + mention("settings.out") + ", where every request is charged anew"
)


def load_key(root: Path) -> bytes:
    """Return the private root's key, made from the system's randomness the first time; the caller holds the key's lock.

    Raises PrivsynError if the key is not whole, is missing though tables or records were made with it, or is not the
    one that ``key-check`` knows.  Folders of versions without that file get it from the key that is there.
    """
    path, check = root / NAME, root / CHECK
    if not path.exists():
        if _is_filled(root):
            problem = f"the key {path}, with which the tables and records of this folder were made, is missing"
            raise PrivsynError(f"{problem}; nothing was read, nothing was spent", _CURE)
        check.unlink(missing_ok=True)  # of a key that nothing was made with
        with replace_file(path) as temporary:
            temporary.write_bytes(secrets.token_bytes(_BYTES))
    key = path.read_bytes()
    if len(key) != _BYTES:
        raise PrivsynError(f"{path} is not a whole key", "Restore it; without it no finished step can be reused")
    mark = hmac.new(key, b"key-check", hashlib.sha256).hexdigest().encode()
    if not check.exists():
        remove_parts(root)  # of a run that was killed here
        with replace_file(check) as temporary:
            temporary.write_bytes(mark + b"\n")
    elif not hmac.compare_digest(check.read_bytes().strip(), mark):
        problem = f"the key {path} is not the one that the records of this folder were made with, as {check.name} tells"
        raise PrivsynError(f"{problem}; nothing was read, nothing was spent", _CURE)
    return key


def _is_filled(root: Path) -> bool:
    return any(path.is_file() for name in _FILLED for path in (root / name).rglob("*"))

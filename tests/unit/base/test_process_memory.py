"""Memory goes back to the system where the C library can give it back; elsewhere nothing happens."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from privsyn.base import process_memory


def refuse(name: None) -> Any:
    raise TypeError("as on Windows, where the program itself is no library")


@pytest.mark.parametrize("load", [refuse, lambda name: object()])
def test_a_library_that_cannot_is_no_error(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(process_memory, "_find_trim", process_memory._find_trim.__wrapped__)
    process_memory.return_unused_memory()

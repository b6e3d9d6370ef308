"""A memory limit ends a command in one sentence, loses and spends nothing; unused memory goes back where it can."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer

from privsyn.base import process_memory
from privsyn.base.errors import PrivsynError, is_out_of_memory
from privsyn.base.settings import Settings
from privsyn.cli.common import print_errors
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines import common_steps
from tests.support.releases import few, release_in_process
from tests.support.specs import people

SENTENCE = (
    "the memory that this program may take is used up{}. Give it more (`ulimit -v` limits it) and run again: finished "
    "steps are kept, and nothing is charged twice."
)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 64 failed for zanzibar"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError("/x/y.so: failed to map segment from shared object"),
        ImportError("/x/y.so: failed to map segment from shared object: Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_refused_memory_is_told_in_one_paragraph(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, print_errors(debug=False):
        try:
            raise error
        except Exception:
            raise ValueError("a library of others could not go on")  # noqa: B904 - as they do
    assert ended.value.exit_code == 1
    assert " ".join(capsys.readouterr().err.split()) == "privsyn: " + SENTENCE.format("")


def test_other_errors_are_no_lack_of_memory() -> None:
    unmapped = "/x/y.so: failed to map segment from shared object: Operation not permitted"
    others = (ValueError("memory"), OSError(errno.ENOSPC, "full"), ImportError(unmapped), RuntimeError("a thread"))
    assert not any(map(is_out_of_memory, others))


def test_a_step_without_memory_spends_nothing_and_is_finished_later(
    places: Path, save: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*how: object) -> pa.Table:
        raise pa.ArrowMemoryError("malloc of size 64 failed for zanzibar")

    spec = few(save(people(200)))
    with monkeypatch.context() as limited:
        limited.setattr(common_steps.encode, "encode", fail)
        with pytest.raises(PrivsynError) as refused:
            release_in_process(spec, Settings())
    assert str(refused.value) == SENTENCE.format(", at the step 'encode'")
    assert refused.value.exit_code == 1
    assert sum(e.rho for e in Ledger(Settings().ledger).entries() if e.event == "spent") == 0
    assert release_in_process(spec, Settings()).drawn


def refuse(name: None) -> Any:
    raise TypeError("as on Windows, where the program itself is no library")


@pytest.mark.parametrize("load", [refuse, lambda name: object()])
def test_a_library_that_cannot_is_no_error(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(process_memory, "_find_trim", process_memory._find_trim.__wrapped__)
    process_memory.return_unused_memory()

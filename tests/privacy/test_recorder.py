"""Bug class 19, once more by others: dp-recorder (Re:cord-play) replays a release and finds what is planted.

Skipped where dp-recorder is not installed, as it is on no index: docs/audit.md says how.  `python -m audit recorder`
has every case and every fault.

It does not see files, contracts, the ledger and engines, and no tables but those of the referee.
"""

from __future__ import annotations

import pytest

from audit.planted_faults import BY_NAME, FAULTS
from audit.recorder import REPLAY, SENSITIVITY, record_case, record_fault
from audit.referee_tables import Effort
from privsyn.tasks.privacy.noise import SeededNoise

pytest.importorskip("dp_recorder", reason="dp-recorder is not installed")
FEW = Effort(2, 0)
BY_FAULT = {fault.name: fault for fault in FAULTS}


def test_19_dp_recorder_finds_nothing_in_a_release() -> None:
    case = BY_NAME["mst, persons of 2"]
    recording = record_case(case, FEW, SeededNoise(1))
    assert recording.findings == {}
    assert set(recording.looks) == set(case.looks)
    assert max(recording.looks.values()) == pytest.approx(1)
    assert 0.9 * recording.claimed < recording.epsilon < recording.claimed


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("rows chosen by a hash of coarse codes", SENSITIVITY),
        ("a sensitivity of half what it is", SENSITIVITY),
        ("a domain read from the data", SENSITIVITY),
        ("post-processing that counts rows", REPLAY),
    ],
)
def test_19_mutant_dp_recorder_finds_a_fault(fault: str, check: str) -> None:
    """Planted mutants, each found by the check that is for it."""
    planted = BY_FAULT[fault]
    case = BY_NAME[planted.case]
    with planted.plant(case):
        assert check in record_case(case, Effort(4, 0), SeededNoise(1), fault=planted).findings


def test_19_mutant_dp_recorder_finds_a_look_that_is_not_charged() -> None:
    """Planted mutant: its composition of all answers is above the promise."""
    planted = BY_FAULT["a look that is not charged"]
    assert record_case(BY_NAME[planted.case], FEW, SeededNoise(1), fault=planted).passes_claim


@pytest.mark.slow
@pytest.mark.drawn_noise
@pytest.mark.statistical(1e-4)
def test_19_mutant_dp_recorder_finds_half_the_noise() -> None:
    """Planted mutant: its samples prove more than the answers declare, and replay alone sees nothing."""
    planted = BY_FAULT["noise of half the scale"]
    trusted, sampled = record_fault(planted, FEW, 10_000, BY_NAME[planted.case])
    assert trusted.findings == {} and not trusted.passes_claim
    assert sampled.passes_samples

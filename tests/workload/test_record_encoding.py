import random
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from argosy.plan.record import UnsupportedVersionError
from argosy.workload import index_ranges
from argosy.workload.model import Phase
from argosy.workload.record import MAX_HISTORY, MAX_RESTART_HISTORY, Record, WaitReason
from argosy.workload.record_encoding import decode, encode
from argosy.workload.restarts import causes
from tests.support.workloads import NOW, later, pod, role_record

FULL = Record(
    phase=Phase.RESTARTING,
    phase_since=NOW,
    reason="Restarting",
    waiting=WaitReason("BackOff", "waits", later(3.25)),
    generation=7,
    attempt=3,
    restarts=2,
    started_at=NOW,
    roles={
        "worker": role_record(
            phase=Phase.RUNNING,
            size=9,
            created=9,
            replacements={1: 2, 2: 2, 7: 1},
            container_restarts={0: 4},
            succeeded_indexes={8: 1},
        )
    },
    restart_history=(causes.restart_entry(pod(2, "Failed", exit_code=137, node="n"), NOW, "Pod"),),
).with_history(NOW, "Running", "attempt 3 is running")


def through_the_api(record: Record) -> object:
    stored: object = msgspec.json.decode(msgspec.json.encode(encode(record)))
    return stored


@pytest.mark.parametrize("record", [Record(phase_since=NOW), FULL], ids=["new", "full"])
def test_a_record_is_the_same_after_encoding_and_decoding(record: Record) -> None:
    assert decode(through_the_api(record)) == record


def test_unknown_fields_of_a_later_version_are_kept() -> None:
    stored = {**encode(FULL), "version": 2, "checkpoint": {"step": 1200}}
    record = decode(stored)
    assert record is not None
    assert record.phase is Phase.RESTARTING
    assert encode(replace(record, restarts=3)) == {**stored, "restarts": 3}


def test_unknown_fields_of_a_role_of_a_later_version_are_kept() -> None:
    stored = encode(FULL)
    roles = stored["roles"]
    assert isinstance(roles, dict)
    roles["worker"]["forecast"] = "fair"
    record = decode(stored)
    assert record is not None
    assert encode(record.with_role("worker", replace(record.role("worker"), declared=10))) == {
        **stored,
        "roles": {"worker": {**roles["worker"], "declared": 10}},
    }


UNREADABLE: dict[str, object] = {
    "null: None": None,
    "empty object: None": {},
    "list: None": [],
    "unknown phase: None": {"version": 1, "phase": "Dancing"},
    "invalid index ranges: None": {"version": 1, "roles": {"worker": {"replacements": "x=y"}}},
    "roles of another type: None": {"version": 1, "roles": "worker"},
    "index beyond the largest job: None": {
        "version": 1,
        "roles": {"worker": {"succeededIndexes": "0-99999999999=1"}},
    },
}


@pytest.mark.parametrize("stored", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_damaged_record_is_none(stored: object) -> None:
    assert decode(stored) is None


def test_an_unreadable_record_of_a_later_version_raises() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"version 2: .*Dancing"):
        decode({"version": 2, "phase": "Dancing"})


def test_history_is_bounded() -> None:
    record = Record(phase_since=NOW)
    for number in range(50):
        record = record.with_history(NOW, "Restarting", f"{number} " + "x" * 1000)
    assert len(record.history) == MAX_HISTORY
    assert record.history[-1].message.startswith("49 ")
    assert all(len(entry.message) <= 300 for entry in record.history)


def test_the_restart_history_is_bounded() -> None:
    record = Record(phase_since=NOW)
    for number in range(50):
        record = record.with_restarts(causes.restart_entry(pod(number, "Failed", exit_code=1), NOW, "Pod"))
    assert len(record.restart_history) == MAX_RESTART_HISTORY
    assert record.restart_history[-1].index == 49


def test_an_unknown_cause_of_a_later_version_is_kept() -> None:
    stored = encode(FULL)
    entry = {"at": "2030-01-01T12:00:00Z", "role": "w", "index": 0, "cause": "X", "scope": "Y"}
    stored["restartHistory"] = [entry]
    record = decode(stored)
    assert record is not None
    assert [(restart.cause, restart.scope) for restart in record.restart_history] == [("X", "Y")]
    assert encode(record) == stored


def test_two_thousand_pods_in_the_worst_order_fit_in_32_kb() -> None:
    dice = random.Random(1)
    record = Record(phase_since=NOW)
    for number in range(MAX_HISTORY):
        record = record.with_history(datetime.now(UTC), "Restarting", "x" * 300)
        lost = pod(1000 + number, "Failed", disrupted=True, reason="Evicted", node="n" * 40)
        lost_pod = replace(lost, message="x" * 1000, role="r" * 40)
        entry = replace(
            causes.restart_entry(lost_pod, datetime.now(UTC), "Pod"),
            pod_fingerprint=causes.pod_fingerprint(lost_pod),
        )
        record = record.with_restarts(entry)
    worker = role_record(
        size=2000,
        created=2000,
        replacements={index: dice.randint(1, 9) for index in range(2000)},
        succeeded_indexes={index: 1 for index in range(2000) if dice.random() < 0.5},
    )
    size = len(msgspec.json.encode(encode(record.with_role("worker", worker))))
    assert size <= 32_000, size


TALLIES = {
    "": {},
    "3=1": {3: 1},
    "0-3=1,7=2": {0: 1, 1: 1, 2: 1, 3: 1, 7: 2},
    "0-1=2,2=1": {0: 2, 1: 2, 2: 1},
}


@pytest.mark.parametrize(("text", "numbers"), TALLIES.items())
def test_numbers_by_index_are_encoded_as_ranges(text: str, numbers: dict[int, int]) -> None:
    assert index_ranges.encode(numbers) == text
    assert index_ranges.decode(text) == numbers


def test_zeros_are_not_encoded() -> None:
    assert index_ranges.encode({0: 0, 1: 1}) == "1=1"

"""Tables have the columns and cells of kube-apiserver."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from argosy.local.schema.builtin import builtin_kinds
from argosy.local.schema.model import Json
from argosy.local.schema.tables.cells import human_duration
from argosy.local.schema.tables.table import builtin_columns, custom_columns, table_for

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EARLIER = (NOW - timedelta(minutes=5)).isoformat().replace("+00:00", "Z")

DURATIONS = {0: "0s", 119: "119s", 120: "2m", 330: "5m30s", 3600: "60m", 12000: "3h20m", 90000: "25h"}
DURATIONS |= {
    3 * 86400: "3d",
    3 * 86400 + 7200: "3d2h",
    400 * 86400: "400d",
    800 * 86400: "2y70d",
    -5: "<invalid>",
}


@pytest.mark.parametrize(("seconds", "want"), DURATIONS.items())
def test_durations_have_two_or_three_digits(seconds: int, want: str) -> None:
    assert human_duration(seconds) == want


class PodCase(NamedTuple):
    status: Json
    want: list[object]
    spec: Json | None = None
    deleted: bool = False


RUNNING = {"state": {"running": {}}, "ready": True, "restartCount": 0, "name": "c"}


def waiting(reason: str, restarts: int = 0) -> Json:
    return {"state": {"waiting": {"reason": reason}}, "ready": False, "restartCount": restarts, "name": "c"}


def terminated(code: int, reason: str = "", name: str = "c") -> Json:
    state = {"exitCode": code, **({"reason": reason} if reason else {})}
    return {"state": {"terminated": state}, "ready": False, "restartCount": 0, "name": name}


INIT_SPEC: Json = {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}
SIDECAR_SPEC: Json = {
    "containers": [{"name": "c"}],
    "initContainers": [{"name": "s", "restartPolicy": "Always"}],
}

POD_CASES = {
    "pending pod: its phase": PodCase({"phase": "Pending"}, ["0/1", "Pending", "0"]),
    "running pod: ready": PodCase(
        {"phase": "Running", "containerStatuses": [RUNNING]}, ["1/1", "Running", "0"]
    ),
    "crashing container: its waiting reason": PodCase(
        {
            "phase": "Running",
            "containerStatuses": [
                {**waiting("CrashLoopBackOff", 3), "lastState": {"terminated": {"finishedAt": EARLIER}}}
            ],
        },
        ["0/1", "CrashLoopBackOff", "3 (5m ago)"],
    ),
    "running init container: number of completed ones": PodCase(
        {"phase": "Pending", "initContainerStatuses": [waiting("PodInitializing")]},
        ["0/1", "Init:0/1", "0"],
        INIT_SPEC,
    ),
    "failed init container: its reason": PodCase(
        {"phase": "Pending", "initContainerStatuses": [terminated(1, "Error")]},
        ["0/1", "Init:Error", "0"],
        INIT_SPEC,
    ),
    "failed init container without a reason: its exit code": PodCase(
        {"phase": "Pending", "initContainerStatuses": [terminated(3)]},
        ["0/1", "Init:ExitCode:3", "0"],
        INIT_SPEC,
    ),
    "running sidecar: counted as a container": PodCase(
        {
            "phase": "Running",
            "initContainerStatuses": [{**RUNNING, "name": "s", "started": True}],
            "containerStatuses": [RUNNING],
        },
        ["2/2", "Running", "0"],
        SIDECAR_SPEC,
    ),
    "succeeded pod: Completed": PodCase(
        {"phase": "Succeeded", "containerStatuses": [terminated(0, "Completed")]}, ["0/1", "Completed", "0"]
    ),
    "failed pod: reason of its container": PodCase(
        {"phase": "Failed", "containerStatuses": [terminated(137, "OOMKilled")]}, ["0/1", "OOMKilled", "0"]
    ),
    "evicted pod: reason of the pod": PodCase(
        {"phase": "Failed", "reason": "Evicted"}, ["0/1", "Evicted", "0"]
    ),
    "pod with a deletionTimestamp: Terminating": PodCase(
        {"phase": "Running", "containerStatuses": [RUNNING]}, ["1/1", "Terminating", "0"], deleted=True
    ),
    "pod with a deletionTimestamp on a lost node: Unknown": PodCase(
        {"phase": "Running", "reason": "NodeLost"}, ["0/1", "Unknown", "0"], deleted=True
    ),
    "pod with scheduling gates: SchedulingGated": PodCase(
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
        ["0/1", "SchedulingGated", "0"],
    ),
}


@pytest.mark.parametrize("case", POD_CASES.values(), ids=POD_CASES.keys())
def test_row_of_a_pod(case: PodCase) -> None:
    metadata: Json = {"name": "p", "creationTimestamp": EARLIER}
    if case.deleted:
        metadata["deletionTimestamp"] = EARLIER
    pod: Json = {
        "metadata": metadata,
        "spec": case.spec or {"containers": [{"name": "c"}]},
        "status": case.status,
    }
    table = table_for(builtin_columns("", "Pod"), [pod], now=NOW)
    rows = table["rows"]
    assert isinstance(rows, list)
    assert rows[0]["cells"] == ["p", *case.want, "5m", "<none>", "<none>", "<none>", "<none>"]


@pytest.mark.parametrize("info", builtin_kinds(), ids=lambda info: f"{info.group}/{info.kind}")
def test_row_of_an_empty_object_has_a_cell_for_each_column(info: object) -> None:
    assert hasattr(info, "group")
    assert hasattr(info, "kind")
    columns = builtin_columns(info.group, info.kind)
    assert len(columns.cells({"metadata": {"name": "x"}}, NOW)) == len(columns.definitions)


def test_custom_columns_are_typed_values_at_their_paths() -> None:
    columns = custom_columns(
        [
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Count", "type": "integer", "jsonPath": ".status.count", "priority": 1},
            {"name": "Roles", "type": "string", "jsonPath": ".spec.roles"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]
    )
    item: Json = {
        "metadata": {"name": "a", "creationTimestamp": EARLIER},
        "spec": {"roles": {"b": 1}},
        "status": {"count": 3, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert columns.cells(item, NOW) == ["a", None, "True", 3, '{"b":1}', "5m"]
    assert columns.definitions[3].priority == 1


def test_table_without_headers_has_no_columns() -> None:
    table = table_for(
        builtin_columns("", "Pod"), [], now=NOW, headers=False, metadata={"resourceVersion": "7"}
    )
    assert table["columnDefinitions"] is None
    assert table["metadata"] == {"resourceVersion": "7"}

"""Tests for the steps of the simulated kubelet."""

from datetime import timedelta

import msgspec
import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Namespace
from tests.support.scheduler_objects import START, Json
from tests.support.servers import Server
from tests.support.simulator import (
    EXIT_CODE,
    RELEASED,
    RUN_SECONDS,
    START_SECONDS,
    UNTIL_RELEASED,
    Become,
    Bind,
    Later,
    Pod,
    Remove,
    Simulator,
    next_step,
    pod_status,
)
from tests.support.waiting import connections_closed, until


def pod(
    phase: str = "Pending", *, node: str = "n", notes: Json | None = None, metadata: Json | None = None
) -> Pod:
    return msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "annotations": notes or {},
                "creationTimestamp": START,
                **(metadata or {}),
            },
            "spec": {"nodeName": node, "containers": [{"name": "main"}]},
            "status": {"phase": phase, "startTime": START},
        },
        Pod,
    )


DELETED: Json = {"deletionTimestamp": START, "deletionGracePeriodSeconds": 30}
STEPS = {
    "pod without a node: no step": (pod(node=""), False, None),
    "pod without a node, with scheduling: bound": (pod(node=""), True, Bind()),
    "bound pod: becomes Running": (pod(), False, Become("Running")),
    "bound pod with start-seconds: waits": (pod(notes={START_SECONDS: "5"}), False, Later(4.0)),
    "running pod: no step": (pod("Running"), False, None),
    "running pod with run-seconds: waits": (pod("Running", notes={RUN_SECONDS: "5"}), False, Later(4.0)),
    "running pod after run-seconds: succeeds": (
        pod("Running", notes={RUN_SECONDS: "1"}),
        False,
        Become("Succeeded"),
    ),
    "running pod after run-seconds with an exit code: fails": (
        pod("Running", notes={RUN_SECONDS: "1", EXIT_CODE: "3"}),
        False,
        Become("Failed", 3),
    ),
    "ended pod: no step": (pod("Failed", notes={RUN_SECONDS: "1"}), False, None),
    "terminating pod: removed": (pod("Running", metadata=DELETED), False, Remove()),
    "terminating pod with a finalizer: fails first": (
        pod("Running", metadata={**DELETED, "finalizers": ["x"]}),
        False,
        Become("Failed", 137),
    ),
    "terminating pod with a finalizer that has failed: no step": (
        pod("Failed", metadata={**DELETED, "deletionGracePeriodSeconds": 0, "finalizers": ["x"]}),
        False,
        None,
    ),
}


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
def test_next_step(case: tuple[Pod, bool, object]) -> None:
    current, schedule, want = case
    assert next_step(current, START + timedelta(seconds=1), schedule=schedule) == want


def test_status_of_a_failed_pod_has_the_exit_codes() -> None:
    status = pod_status(pod("Running"), "Failed", 3, "10.0.0.1", START, START + timedelta(seconds=1))
    (container,) = msgspec.convert(status["containerStatuses"], list[dict[str, object]])
    assert container["state"] == {
        "terminated": {
            "exitCode": 3,
            "reason": "Error",
            "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:00:01Z",
        }
    }


def test_pod_with_until_released_ends_after_the_release() -> None:
    waiting = pod("Running", notes={UNTIL_RELEASED: ""})
    assert next_step(waiting, START, schedule=False) is None
    assert next_step(waiting, START, schedule=False, released=True) == Become("Succeeded")


async def test_pods_of_a_released_namespace_succeed(api: Server, namespace: str) -> None:
    async with (
        Client(Connection.from_kubeconfig(api.kubeconfig)) as client,
        Simulator(client, ["sim-a"], schedule=True) as simulator,
    ):
        body = {
            "metadata": {"name": "waiting", "annotations": {UNTIL_RELEASED: ""}},
            "spec": {"containers": [{"name": "main", "image": "simulated"}], "restartPolicy": "Never"},
        }
        await client.create(Pod, body, namespace)

        async def has_phase(phase: str) -> bool:
            return (await client.get(Pod, "waiting", namespace)).status.phase == phase

        await until(lambda: has_phase("Running"), "the pod runs")
        await client.patch(Namespace, namespace, {"metadata": {"annotations": {RELEASED: ""}}})
        await until(lambda: has_phase("Succeeded"), "the pod succeeds")
        await simulator.remove()
    await connections_closed()


async def test_simulator_runs_pods_without_scheduler_or_kubelet(api: Server, namespace: str) -> None:
    async with (
        Client(Connection.from_kubeconfig(api.kubeconfig)) as client,
        Simulator(client, ["sim-a", "sim-b"], schedule=True) as simulator,
    ):
        for number in range(4):
            notes = {RUN_SECONDS: "0"} if number % 2 else {}
            body = {
                "metadata": {"name": f"p{number}", "annotations": notes},
                "spec": {"containers": [{"name": "main", "image": "simulated"}], "restartPolicy": "Never"},
            }
            await client.create(Pod, body, namespace)

        async def phases(*want: str) -> bool:
            pods = (await client.list(Pod, namespace)).items
            return sorted(item.status.phase for item in pods) == sorted(want)

        await until(lambda: phases("Running", "Running", "Succeeded", "Succeeded"), "pods live and end")
        nodes = {item.spec.node_name for item in (await client.list(Pod, namespace)).items}
        assert nodes == {"sim-a", "sim-b"}
        for number in range(4):
            await client.delete(Pod, f"p{number}", namespace)
        await until(phases, "deleted pods vanish")
        await simulator.remove()
    await connections_closed()

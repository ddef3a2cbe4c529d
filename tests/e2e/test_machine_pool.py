"""A pool of rented machines shrinks to nothing under a training, the operator is killed, and no step is lost.

The machine without pods goes first. Before the other one goes, the training saves; when there is a machine
again, it continues with the next step.
"""

from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.spot_jobs import spot_vm
from tests.support.spot_rehearsal import buying_options, rehearsed_cloud, running
from tests.support.trainingjobs import Json
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(400)]

POOL: Json = {
    "apiVersion": "argosy.dev/v1alpha1",
    "kind": "MachinePool",
    "metadata": {"name": "pool"},
    "spec": {
        "replicas": 2,
        "template": {"kind": "SpotInstanceVM", "name": "vm"},
        "gcpCredentialsSecretRef": {"name": "gcp-credentials"},
        "drainGrace": "5m",
    },
}


def training(store: Path) -> str:
    """Return the example of a run with checkpoints, on machines of the pool."""
    run: Any = yaml.safe_load((REPOSITORY / "examples/checkpointed/run.yaml").read_text())
    run["spec"]["checkpoint"]["store"] = f"file://{store}"
    run["spec"]["roles"]["worker"]["template"]["spec"]["nodeSelector"] = {
        "argosy.dev/machine-pool": "default.pool"
    }
    return yaml.safe_dump(run)


def status(plane: ControlPlane, kind: str, name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", plane.get(kind, name).get("status", {}))


def test_training_loses_no_step_when_its_pool_is_scaled_to_nothing_and_back(tmp_path: Path) -> None:
    store, file = tmp_path / "checkpoints", tmp_path / "run.yaml"
    file.write_text(training(store))
    with rehearsed_cloud("30s") as rehearsed:
        plane = rehearsed.plane
        operator = (
            *("operator", "--local", str(plane.state.folder)),
            *buying_options(rehearsed.endpoint, ("argosy", "spot")),
        )

        def has(**counts: int) -> bool:
            found = status(plane, "machinepool", "pool")
            return {name: found.get(name) for name in counts} == counts

        def run() -> dict[str, Any]:
            return status(plane, "trainingrun", "checkpointed")

        with running(plane, *operator) as first:
            rehearsed.apply_secrets()
            rehearsed.apply(spot_vm("vm"), POOL)
            wait_for(lambda: has(ready=2), "both machines are ready", 90)
            plane.argosy("run", "--mount-cwd", "--detach", str(file))
            wait_for(lambda: run().get("phase") == "Running", "the training runs", 90)
            busy = plane.kubectl("get", "pod", "checkpointed-worker-0", "-o", "jsonpath={.spec.nodeName}")
            plane.kubectl("scale", "machinepool/pool", "--replicas", "1")
            wait_for(lambda: rehearsed.vms() == [busy.stdout], "the machine without pods is deleted", 90)
            wait_for(lambda: bool(list(store.rglob("step-*"))), "a checkpoint is there", 90)
            plane.kubectl("scale", "machinepool/pool", "--replicas", "0")
            first.kill()
        with running(plane, *operator):
            wait_for(lambda: rehearsed.vms() == [], "the other one goes long before its time is over", 90)
            plane.kubectl("scale", "machinepool/pool", "--replicas", "1")
            wait_for(lambda: run().get("phase") == "Succeeded", "the training succeeds", 120)
            [recovery] = run()["recoveries"]
            assert (recovery["source"], recovery["action"], recovery["outcome"], recovery["stepsLost"]) == (
                *("machine-pool", "SaveAndMove", "Recovered"),
                0,
            )
            [computed] = store.rglob("computed.txt")
            steps = computed.read_text().split()
            assert steps == [str(number) for number in range(1, 401)], "each step once, in order"
            plane.kubectl("delete", "machinepool", "pool", "--timeout", "60s")
            assert rehearsed.vms() == []

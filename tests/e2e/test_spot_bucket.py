"""A SpotInstanceJob keeps its checkpoints in an S3 server, and loses a node and no step.

Each pod saves to a folder of its own, and its sidecar sends that to the folder of the replica in the bucket.
The new pod of the lost replica restores whichever checkpoint is ahead.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from argosy.checkpoint.drivers.uris import open_copies
from tests.support import examples
from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.node_agents import enter_node_network
from tests.support.s3_server import BUCKET, RunningS3, require_s3_server, running_s3
from tests.support.spot_jobs import EXAMPLES, Json
from tests.support.spot_trainings import RunningJob
from tests.support.trainingjobs import load
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(240)]

NAME = "in-a-bucket"
OUR_CONTAINERS = {"argosy-checkpoint-init", "argosy-checkpoint"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    running = ControlPlane.up("--nodes", "3", "--pretend-gpus", "1")
    yield running
    running.down()


@pytest.fixture
def s3(plane: ControlPlane, tmp_path: Path) -> Iterator[RunningS3]:
    """An S3 server in the network of the nodes."""
    require_s3_server()
    [first, *_] = cast("list[Json]", plane.get("nodes")["items"])
    addresses = cast("list[Json]", cast("Json", first["status"])["addresses"])
    [host] = {str(address["address"]) for address in addresses if address["type"] == "InternalIP"}
    with running_s3(tmp_path, enter=enter_node_network(plane), host=host) as running:
        yield running


def example() -> Json:
    """The example with an S3 server, and with the clone of this machine as its image."""
    job = load(REPOSITORY / examples.SPOT_BUCKET)
    spec = cast("Json", job["spec"])
    storage: Json = {"type": "s3", "bucket": BUCKET, "pathPrefix": "team 1", "credentials": {"name": NAME}}
    cast("Json", spec["checkpointConfig"]).update(checkpointInterval="2s", checkpointStorage=storage)
    template = cast("Json", cast("Json", cast("Json", spec["jobTemplate"])["spec"])["template"])
    pod = cast("Json", template["spec"])
    pod["terminationGracePeriodSeconds"] = 2
    [training] = cast("list[Json]", pod["containers"])
    cast("list[Json]", training["env"]).append({"name": "PACE", "value": "0.02"})
    folder = str(REPOSITORY)
    training |= {
        "image": "local",
        "workingDir": folder,
        "volumeMounts": [{"name": "clone", "mountPath": folder}],
    }
    pod["volumes"] = [{"name": "clone", "hostPath": {"path": folder}}]
    return job


def secret(variables: Mapping[str, str]) -> Json:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in variables.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "data": data}


class Store:
    """The bucket, whose objects are files of this machine."""

    def __init__(self, objects: Path, folder: Path) -> None:
        self._top = objects / "team 1" / "default"
        self._folder = folder

    @property
    def copies(self) -> Path:
        [job] = self._top.iterdir()
        return job

    def newest(self) -> tuple[int, str]:
        """Return step and state of the newest checkpoint of any replica."""
        target = self._folder / f"newest-{len([*self._folder.iterdir()])}"
        uri = f"file://{str(self.copies).replace(' ', '%20')}"
        assert open_copies(uri, "replica-0").restore_latest(target).manifest is not None
        step, state = (target / "state.txt").read_text().split()
        return int(step), state


def undisturbed(steps: int) -> str:
    """Return the state of the example's training after so many steps."""
    state = ""
    for step in range(1, steps + 1):
        state = hashlib.sha256(f"{state} {step}".encode()).hexdigest()
    return state


def test_a_lost_replica_continues_from_the_bucket_without_a_lost_step(
    plane: ControlPlane, s3: RunningS3, tmp_path: Path
) -> None:
    plane.kubectl("apply", "-f", str(EXAMPLES / "spotinstancevm.yaml"))
    objects: Json = {"apiVersion": "v1", "kind": "List", "items": [secret(s3.credentials), example()]}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(objects))
    job = RunningJob(plane, NAME)
    store = Store(s3.objects, tmp_path)
    wait_for(lambda: job.status.get("lastCheckpointStep"), job.show, 90)
    wait_for(
        lambda: len([*store.copies.glob("replica-*")]) == 2, "both replicas save to folders of their own"
    )
    assert containers_with_the_secret(job.pod(0)) == OUR_CONTAINERS

    lost = str(job.replica(0)["nodeName"])
    plane.argosy("rehearse", "reclaim", lost, "--in", "20s")
    wait_for(lambda: [r.get("outcome") for r in job.recoveries] == ["Recovered"], job.show, 90)
    [recovery] = job.recoveries
    assert (recovery["cause"], recovery["action"]) == ("Preempted", "CheckpointMade")
    saved = int(str(recovery["restoredFrom"]).removeprefix("step "))
    assert (job.replica(0)["incarnation"], job.replica(0)["nodeName"] == lost) == (1, False)
    output = log(job, "training")
    resumed = int(output[0].removeprefix("from step ").partition(" ")[0])
    assert resumed >= saved, (
        "the checkpoint that the lost pod has stopped at, or a newer one of the other replica"
    )
    assert f"argosy: resuming from step {resumed}" in log(job, "argosy-checkpoint-init")

    wait_for(lambda: int(str(job.status["lastCheckpointStep"])) > resumed, job.show)
    step, state = store.newest()
    assert (step > saved, state) == (True, undisturbed(step))
    plane.kubectl("delete", f"spotinstancejob/{NAME}", "--timeout=60s")


def log(job: RunningJob, container: str) -> list[str]:
    """Return the output of a container of the new pod of replica 0."""
    words = ("logs", f"job/{job.replica(0)['name']}", "-c", container)
    return job.plane.kubectl(*words).stdout.splitlines()


def containers_with_the_secret(pod: Json) -> set[object]:
    spec = cast("Json", pod["spec"])
    volumes = cast("list[Json]", spec["volumes"])
    [volume] = [
        each["name"] for each in volumes if cast("Json", each.get("secret", {})).get("secretName") == NAME
    ]
    containers = cast(
        "list[Json]", [*cast("list[Json]", spec["initContainers"]), *cast("list[Json]", spec["containers"])]
    )
    return {
        container["name"]
        for container in containers
        if volume in [mount["name"] for mount in cast("list[Json]", container["volumeMounts"])]
    }

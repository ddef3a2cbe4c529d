"""The examples of this repository, prepared to run on any node of a test cluster.

The examples are started by `argosy run --mount-cwd`: the containers mount the current folder and the virtual
environment, which is the repository's or one with the example's requirements. The image of a node has neither
PyTorch nor Open MPI, so the containers also mount the software of the machine.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import pytest
import yaml

from argosy.cli.local_mounts import Manifest, mount_working_dir
from tests.support import assets, framework_venvs
from tests.support.assets import MissingAsset
from tests.support.commands import REPOSITORY, environment
from tests.support.mpi_venvs import SYSTEM

QUICKSTART: Final = "examples/quickstart/run.yaml"
WANTED: Final[Mapping[str, str]] = {
    QUICKSTART: "accuracy 0.9",
    "examples/pytorch/run.yaml": "found the slope",
    "examples/pytorch/torchrun.yaml": "4 workers, from step 0",
    "examples/pytorch/elastic.yaml": "found the slope",
    "examples/custom/run.yaml": "all have counted",
    "examples/mpi/openmpi.yaml": "pi is about 3.14",
    "examples/standalone/run.yaml": "rate 0.3: found the slope",
    "examples/jax/run.yaml": "found the slope",
    "examples/dask/run.yaml": "16 parts on dask-worker-0 and dask-worker-1",
    "examples/tensorflow/run.yaml": "found the slope",
    "examples/tensorflow/ps.yaml": "found the slope",
    "examples/xgboost/run.yaml": "on held-out rows",
    "examples/bagua/run.yaml": "rank 0 of 3 with 3 ports",
    "examples/bagua/elastic.yaml": "rank 1 of 2 with 2 ports",
    "examples/deepspeed/run.yaml": "rank 1 of 2 found the slope",
    "examples/horovod/mpi.yaml": "2 ranks found the slope",
    "examples/horovod/gloo.yaml": "2 ranks found the slope",
}
"""The examples, and what each prints when it succeeds."""
ADAPTER: Final = "examples/adapter/run.yaml"
"""Needs an operator with the adapter installed: tests/e2e/test_adapter.py."""
ELASTIC_HOROVOD: Final = "examples/et/job.yaml"
"""Its workers are added, removed and killed: tests/e2e/test_elastic_horovod.py."""
ELASTIC_TORCH: Final = "examples/elastic-torch/run.yaml"
"""Its workers are added, removed and killed: tests/e2e/test_elastic_torch.py."""
ADAPTIVE_DASK: Final = "examples/dask/adaptive.yaml"
"""Has as many workers as Dask wants: tests/e2e/test_elastic_dask.py."""
ELASTIC: Final = "examples/elastic/run.yaml"
"""Loses a node and grows back: tests/e2e/test_elastic_example.py."""
CHECKPOINTED: Final = "examples/checkpointed/run.yaml"
"""Loses nodes and no step: tests/e2e/test_checkpointed_runs.py."""
CHECKPOINTED_ARES: Final = "examples/ares/checkpointed.yaml"
"""The same as an AresJob."""
CHECKPOINTED_ET: Final = "examples/et/checkpointed.yaml"
"""The same as a TrainingJob."""
SIGTERM: Final = "examples/checkpointed/sigterm.yaml"
"""The same; it saves at SIGTERM only."""
ELASTIC_CHECKPOINTS: Final = "examples/checkpoint/elastic.yaml"
"""Gets a worker and loses a node: tests/e2e/test_elastic_torch_checkpoints.py."""
ESCALATION: Final = "examples/custom/escalation.yaml"
"""Fails in between: tests/conformance/test_causes.py."""
SPOT: Final = ("examples/spot/spotinstancejob.yaml", "examples/spot/spotinstancevm.yaml")
"""The manifests of the README, whose images are the user's: tests/e2e/test_spot.py."""
SPOT_CHECKPOINTED: Final = "examples/spot/checkpointed.yaml"
"""A training that saves itself loses the node of a replica: tests/e2e/test_spot_app.py."""
SPOT_BUCKET: Final = "examples/spot/bucket.yaml"
"""The same with its checkpoints in a bucket: tests/e2e/test_spot_bucket.py."""
RENTED: Final = (
    "examples/spot/machines.yaml",
    "examples/spot/run.yaml",
)
"""A training whose machines are rented: tests/e2e/test_spot_example.py."""
GANG: Final = "examples/custom/gang.yaml"
"""Its status depends on the gang scheduler: tests/conformance/test_gangs.py."""
FIRST_ARES: Final = "examples/ares/custom.yaml"
"""Needs nothing mounted: tests/conformance/test_ares.py."""
ARES: Final[Mapping[str, tuple[str, str]]] = {
    "examples/ares/dask.yaml": ("launcher-0", "the sum of squares is 332833500"),
    "examples/ares/elastic.yaml": ("server-0", "the sum of squares is 8955050"),
    "examples/ares/mpi.yaml": ("launcher-0", "pi is about 3.14"),
    "examples/ares/pytorch.yaml": ("master-0", "rank 0 of 3 found the slope 2.00"),
    "examples/ares/standalone.yaml": ("worker-1", "rate 0.03: found the slope within 0.09"),
    "examples/ares/tensorflow.yaml": ("worker-1", "worker 1 of 2 found the slope 2.00"),
}
"""The other examples that are AresJobs, with a pod and what it prints."""
_WITH_ETCD: Final = ("examples/bagua/elastic.yaml",)
_WITH_SSHD: Final = ("examples/ares/mpi.yaml",)
_SSHD: Final = Path("/usr/sbin/sshd")
_PATIENCE: Final = {"name": "HOROVOD_START_TIMEOUT", "value": "180"}
"""horovodrun gives workers half a minute to import PyTorch, which is too short on a busy machine."""
_NEEDED: Final = {"pytorch": "torch", "elastic-torch": "torch", "checkpoint": "torch", "mpi": "mpi4py"}
"""The Python module that the examples of a framework import."""


def framework_of(example: str) -> str:
    """The framework of an example: its folder, or for AresJobs the name of the file."""
    path = Path(example)
    return path.stem if path.parts[1] == "ares" else path.parts[1]


def missing(example: str) -> str:
    """Why an example cannot run on this machine; empty if it can."""
    if example == ELASTIC_HOROVOD:
        example = "examples/horovod/gloo.yaml"
    if example in _WITH_SSHD and not _SSHD.exists():
        return f"{_SSHD} does not exist (Debian: apt install openssh-server)"
    if venv := framework_venvs.of_framework(framework_of(example)):
        return venv.missing
    if example in _WITH_ETCD:
        try:
            assets.find("etcd")
        except MissingAsset as error:
            return str(error)
    module = _NEEDED.get(framework_of(example))
    if module is None:
        return ""
    command = ["/usr/bin/python3", "-c", f"import {module}"]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return ""
    return f"{module} for /usr/bin/python3 is not installed (Debian: apt install python3-{module})"


def manifest(example: str) -> Manifest:
    """An example as `argosy run --mount-cwd` submits it, with the software of the machine mounted."""
    document = with_mounts(
        yaml.safe_load((REPOSITORY / example).read_text()), framework_of(example), etcd=example in _WITH_ETCD
    )
    if example == QUICKSTART:  # it reaches its accuracy long before its last step
        launcher = cast("Manifest", cast("Manifest", cast("Manifest", document["spec"])["roles"])["launcher"])
        pod = cast("Manifest", cast("Manifest", launcher["template"])["spec"])
        container = cast("list[Manifest]", pod["containers"])[0]
        cast("list[Manifest]", container["env"]).append({"name": "STEPS", "value": "400"})
    return document


def require(example: str) -> None:
    """Skip the test if the example cannot run on this machine; fail where nothing may be skipped."""
    if reason := missing(example):
        pytest.fail(reason) if os.environ.get("ARGOSY_REQUIRE_ALL") == "1" else pytest.skip(reason)


def with_mounts(document: Manifest, framework: str, *, etcd: bool = False) -> Manifest:
    """A TrainingRun, AresJob or TrainingJob whose containers mount the repository, the environment and the
    machine's software.
    """
    venv = framework_venvs.of_framework(framework)
    prefix = venv.prefix if venv else Path(sys.prefix)
    programs = (assets.find("etcd").parent,) if etcd else ()
    path = os.pathsep.join((environment()["PATH"], *map(str, programs)))
    spec = cast("Manifest", document["spec"])
    field = next(name for name in ("roles", "roleSpecs", "etReplicaSpecs") if name in spec)
    bare: Manifest = {"spec": {"roles": spec[field]}}
    mounted = mount_working_dir(bare, REPOSITORY, prefix, prefix / "bin" / "python", {"PATH": path})
    roles = cast("Manifest", cast("Manifest", mounted["spec"])["roles"])
    for role in roles.values():
        _mount(cast("Manifest", cast("Manifest", cast("Manifest", role)["template"])["spec"]), programs)
    return {**document, "spec": {**spec, field: roles}}


def _mount(pod: Manifest, programs: tuple[Path, ...]) -> None:
    paths = (*SYSTEM, *programs)
    folders = {f"system-{number}": str(path) for number, path in enumerate(paths) if path.is_dir()}
    volumes = [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for name, path in folders.items()]
    pod["volumes"] = [*cast("list[object]", pod.get("volumes", [])), *volumes]
    for container in cast("list[Manifest]", pod["containers"]):
        container["volumeMounts"] = [*cast("list[object]", container.get("volumeMounts", [])), *mounts]
        container["env"] = [*cast("list[object]", container.get("env", [])), _PATIENCE]

"""The leader is stopped while it buys a VM for longer than its Lease, and another operator takes over.

All is done once nevertheless: nothing is bought, checkpointed or started a second time, neither by the new
leader nor by the old one, which is continued and does not know yet that it leads no more.
"""

import base64
import json
import re
import signal
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from urllib.parse import urlsplit

import msgspec
import pytest

from argosy.engine.cache import Change
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Job
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.operator.settings import NAME as LEASE
from tests.support.criu import require_criu
from tests.support.local_control_plane import ControlPlane
from tests.support.node_agents import registry_for_nodes, running_agent
from tests.support.registry import PROGRAM
from tests.support.spot_jobs import Json, spot_job, spot_vm
from tests.support.spot_rehearsal import Rehearsal, buying_options, rehearsed_cloud, running
from tests.support.spot_trainings import CONTAINERS, TRAINING, RunningJob
from tests.support.stopping_proxy import StoppingProxy, stopping_proxy
from tests.support.waiting import wait_for
from tests.support.watch_thread import watch_in_thread

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed"),
]
JOB, VM = "my-training-job", "my-training-vm"
STOPS: dict[str, tuple[str, str, int]] = {
    # The proxy that stops the leader, the request about a VM at which it does, and how many VMs it has
    # requested by then.
    "before the cloud has said that there is no such VM": (
        "cloud",
        r"^GET \S+/instances/([a-z0-9-]+) ",
        2,
    ),
    "after the Record says that the VM was requested, before the request": (
        "api_server",
        r'^P\S+ \S+/provisionedinstances/([a-z0-9-]+)/status[ ?].*"sent":true',
        2,
    ),
    "after the VM was created, before the answer": (
        "cloud",
        r'^POST \S+/instances\?.*"name":"([a-z0-9-]+)"',
        3,
    ),
}


@dataclass(frozen=True)
class Operator:
    """One of two operators, whose requests all go through proxies."""

    process: Popen[str]
    api_server: StoppingProxy
    cloud: StoppingProxy

    @property
    def inserted(self) -> int:
        return sum(request.startswith("POST ") for request in self.cloud.requests)


@contextmanager
def running_operator(rehearsed: Rehearsal, name: str, folder: Path) -> Iterator[Operator]:
    plane = rehearsed.plane
    config = msgspec.json.decode((plane.state.kubeconfigs / "operator").read_bytes())
    cluster = config["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster.pop("certificate-authority-data")).decode()
    cluster.pop("extensions", None)
    server, cloud_port = urlsplit(cluster["server"]), urlsplit(rehearsed.endpoint).port or 80
    tls = ssl.create_default_context(cadata=authority)
    with (
        stopping_proxy(str(server.hostname), server.port or 443, tls) as api_server,
        stopping_proxy("127.0.0.1", cloud_port) as cloud,
    ):
        cluster["server"] = api_server.url
        kubeconfig = folder / f"kubeconfig-{name}"
        kubeconfig.write_text(json.dumps(config))
        words = ["operator", "--kubeconfig", str(kubeconfig), "--identity", name, "--endpoint", ""]
        words += ["--operator-namespace", "default", "--log-level", "error"]
        words += ["--metrics-bind-address", "", "--health-probe-bind-address", ""]
        with running(plane, *words, *buying_options(cloud.url)) as process:
            try:
                yield Operator(process, api_server, cloud)
            finally:
                process.send_signal(signal.SIGCONT)


@contextmanager
def uids_ever(plane: ControlPlane, *kinds: type[ApiObject]) -> Iterator[dict[str, set[str]]]:
    """Collect the uids of all objects of some kinds that there are at any time during the block."""
    found: dict[str, set[str]] = {kind.resource.kind: set() for kind in kinds}

    def watch(kind: type[ApiObject], stack: ExitStack) -> None:
        def changed(change: Change[ApiObject]) -> None:
            if change.new is not None:
                found[kind.resource.kind].add(change.new.metadata.uid)

        stack.enter_context(watch_in_thread(plane.state.kubeconfig, kind, changed))

    with ExitStack() as stack:
        for kind in kinds:
            watch(kind, stack)
        yield found


@dataclass
class Stage:
    """Two replicas that train on bought VMs, and the two operators."""

    rehearsed: Rehearsal
    job: RunningJob
    operators: dict[str, Operator]
    created: dict[str, set[str]]
    """The uids of all objects there have been, by kind."""
    vms: list[str]

    def leader(self) -> str:
        path = "jsonpath={.spec.holderIdentity}"
        return self.rehearsed.plane.kubectl("get", f"lease/{LEASE}", "-o", path, code=None).stdout

    def stop_at_new_vm(self, proxy: StoppingProxy, expression: str, operator: Operator) -> None:
        """Stop the operator at a request about a VM that there is not yet."""
        pattern = re.compile(expression.encode(), re.DOTALL)

        def is_about_new_vm(request: bytes) -> bool:
            found = pattern.search(request)
            return found is not None and found[1].decode() not in self.vms

        proxy.stop_at(is_about_new_vm, operator.process.pid)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    require_criu()
    with ExitStack() as stack:
        rehearsed = stack.enter_context(rehearsed_cloud(notice="90s"))
        plane, job = rehearsed.plane, RunningJob(rehearsed.plane, JOB)
        registry = stack.enter_context(registry_for_nodes(plane, tmp_path))
        operators = {
            name: stack.enter_context(running_operator(rehearsed, name, tmp_path))
            for name in ("first", "second")
        }
        created = stack.enter_context(uids_ever(plane, ProvisionedInstance, Job, CheckpointBackup))
        rehearsed.apply_secrets()
        repository = f"{registry.address}/checkpoints"
        changes: Json = {"checkpointConfig.checkpointImageRepo": repository, CONTAINERS: [TRAINING]}
        rehearsed.apply(spot_vm(VM), spot_job(JOB, changes))
        wait_for(lambda: job.is_running(0, 0) and job.is_running(1, 0), job.show, 120)
        vms = [str(job.replica(index)["instanceName"]) for index in (0, 1)]
        for vm in vms:
            stack.enter_context(running_agent(plane, vm))
        wait_for(lambda: len(job.steps(1)) >= 20, job.show)
        yield Stage(rehearsed, job, operators, created, vms)


@pytest.mark.parametrize(("at", "request_of", "requested"), STOPS.values(), ids=STOPS.keys())
def test_leader_that_is_stopped_while_it_buys_is_replaced_and_nothing_is_done_twice(
    stage: Stage, at: str, request_of: str, requested: int
) -> None:
    job, old = stage.job, stage.operators.pop(stage.leader())
    [(name_of_new, new)] = stage.operators.items()
    proxy = {"cloud": old.cloud, "api_server": old.api_server}[at]
    stage.stop_at_new_vm(proxy, request_of, old)
    stage.rehearsed.preempt(stage.vms[0])
    assert proxy.stopped.wait(60), old.cloud.requests
    assert (old.inserted, new.cloud.changes()) == (requested, [])
    wait_for(lambda: stage.leader() == name_of_new, "the other takes over")
    to_api_server, to_cloud = len(old.api_server.requests), len(old.cloud.requests)
    old.process.send_signal(signal.SIGCONT)

    wait_for(lambda: job.is_running(0, 1), job.show, 120)
    wait_for(lambda: len(job.steps(0)) >= 20, job.show)
    assert {step.replica for step in job.steps(0)} == {1}, "they are processes of the survivor"
    job.end(0)
    wait_for(lambda: job.status.get("phase") == "Succeeded", job.show)
    wait_for(lambda: stage.rehearsed.vms() == [], "no VM is left", 90)
    numbers = {kind: len(uids) for kind, uids in stage.created.items()}
    assert numbers == {"ProvisionedInstance": 3, "Job": 3, "CheckpointBackup": 1}
    assert old.inserted + new.inserted == 3
    assert old.cloud.changes(to_cloud) == [], "the old leader has bought and deleted nothing more"
    written = [change for change in old.api_server.changes(to_api_server) if "/leases/" not in change]
    assert written == [], "nor written anything"
    assert old.process.poll() is None

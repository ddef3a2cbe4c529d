"""Tests for rendered pods, compared with golden files.

`ARGOSY_WRITE_GOLDEN=1` writes the files again.
"""

import os
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from argosy.frameworks.base import SSH_FOLDER, Injection, Port
from argosy.reconcile.render import PodIdentity, render_role
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.gang_schedulers.base import Membership
from argosy.workload.gang_schedulers.kubernetes import KUBERNETES
from argosy.workload.gang_schedulers.kueue import KUEUE
from argosy.workload.gang_schedulers.registry import BUILTIN
from argosy.workload.gang_schedulers.scheduler_plugins import SCHEDULER_PLUGINS
from argosy.workload.gang_schedulers.volcano import VOLCANO
from argosy.workload.model import Dependency, Elastic, Gang, Phase, RestartPolicy, Role, Rules, Workload
from tests.support.builders import pod_template, role, workload

GOLDEN = Path(__file__).with_name("golden")
SITE = RenderContext(
    helper=Helper(image="argosy/helper:1"), url="https://argosy-operator.argosy-system.svc", ca_pem="PEM"
)
LOCAL = RenderContext(
    helper=Helper(
        image="argosy/helper:1",
        command=("/home/me/venv/bin/python", "-I", "/home/me/argosy/helper/__main__.py"),
        mounts=("/home/me/venv", "/home/me/argosy"),
        user=None,
        kubectl="/home/me/venv/bin/kubectl",
    ),
    url="https://argosy-operator.argosy-system.svc",
    ca_pem="PEM",
)
RICH = {
    "metadata": {"labels": {"team": "a", "argosy.dev/role": "mine"}, "annotations": {"note": "kept"}},
    "spec": {
        "initContainers": [{"name": "fetch", "image": "fetch"}],
        "containers": [
            {
                "name": "main",
                "image": "pytorch",
                "command": ["torchrun", "train.py"],
                "env": [{"name": "MASTER_PORT", "value": "1234"}, {"name": "WORLD_SIZE", "value": "99"}],
                "ports": [{"name": "rendezvous", "containerPort": 1}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "log", "image": "log"},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "restartPolicy": "Always",
        "dnsConfig": {"searches": ["corp.example"]},
    },
}


class Plain(yaml.SafeDumper):
    """Writes YAML without anchors and aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@dataclass
class Case:
    workload: Workload
    role: Role
    injection: Injection = field(default_factory=Injection)
    place: PodIdentity = field(default_factory=lambda: PodIdentity("mnist-worker-1", 1))
    site: RenderContext = SITE
    membership: Membership | None = None
    service_account: str = ""


SERVED = Rules(services=("worker",))
EVEN = role(restart=RestartPolicy.ON_FAILURE, elastic=Elastic(2, 8, 2))
GANG = workload(role(), gang=Gang(min_available=2, queue="research", priority_class="high"))

CASES = {
    "a bare pod gets its identity and nothing else": Case(workload(role()), role()),
    "the framework's wishes yield to the user's, except where forced": Case(
        workload(role(template=RICH), rules=SERVED),
        role(template=RICH, container_restart_policy=RestartPolicy.ON_FAILURE),
        Injection(
            env={"MASTER_ADDR": "mnist-worker-0", "MASTER_PORT": "29500", "WORLD_SIZE": "2"},
            override_env=frozenset({"WORLD_SIZE"}),
            ports=(Port("rendezvous", 29500), Port("metrics", 9000)),
            files={
                "/etc/argosy/hosts": "a\nb\n",
                "/etc/argosy/size": "2",
                "/etc/mpi/hostfile": "a slots=1\n",
            },
            default_command=("never", "used"),
            dns_searches=("mnist-worker.default.svc.cluster.local",),
        ),
        PodIdentity("mnist-worker-1", 1, attempt=2, replacement=3),
    ),
    "a dependent waits in an init container": Case(
        workload(role(), role("launcher")),
        role("launcher", depends_on=(Dependency("worker", Phase.RUNNING),)),
        Injection(depends_on=(Dependency("worker", Phase.RUNNING), Dependency("data", Phase.SUCCEEDED))),
        PodIdentity("mnist-launcher-0", 0),
    ),
    "a pod of a role with few allowed sizes waits to be a member": Case(
        workload(EVEN, rules=SERVED), replace(EVEN, depends_on=(Dependency("data", Phase.SUCCEEDED),))
    ),
    "a launcher gets remote exec and an account for it": Case(
        workload(role(), role("launcher")),
        role("launcher"),
        Injection(remote_exec=True, depends_on=(Dependency("worker"),), default_command=("mpirun",)),
        PodIdentity("mnist-launcher-0", 0),
        service_account="mnist-launcher",
    ),
    "locally the helper is the installation's own": Case(
        workload(role(), role("launcher")),
        role("launcher"),
        Injection(remote_exec=True),
        PodIdentity("mnist-launcher-0", 0),
        site=LOCAL,
        service_account="mnist-launcher",
    ),
    "a pod that others reach by ssh has the job's keys, but for init containers": Case(
        workload(role(template=RICH), rules=Rules(ssh_roles=("worker",))), role(template=RICH)
    ),
    "a gang's pod names its group and scheduler": Case(
        GANG, role(), membership=VOLCANO.membership(GANG, "worker")
    ),
    **{
        f"a pod of a gang under {scheduler.name}": Case(
            GANG, role(), membership=scheduler.membership(GANG, "worker")
        )
        for scheduler in (KUBERNETES, SCHEDULER_PLUGINS, KUEUE, BUILTIN)
    },
}


@pytest.mark.parametrize("sentence", CASES)
def test_pods_are_rendered_as_in_the_golden_files(sentence: str) -> None:
    case = CASES[sentence]
    before = deepcopy(case.role.template)
    rendered = render_role(
        case.site,
        case.workload,
        case.role,
        case.injection,
        token="token",
        membership=case.membership,
        service_account=case.service_account,
    )
    pod = rendered.render_pod(case.place, case.injection.env)
    assert case.role.template == before, "the template was changed in place"
    file = GOLDEN / f"{sentence.replace(' ', '-').replace(',', '').replace(chr(39), '')}.yaml"
    text = yaml.dump(pod, Dumper=Plain, sort_keys=False, width=110)
    if os.environ.get("ARGOSY_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_a_service_account_of_the_user_is_kept() -> None:
    template = pod_template()
    template["spec"] = {"serviceAccountName": "mine", "containers": [{"name": "main"}]}
    launcher = role("launcher", template=template)
    injection = Injection(remote_exec=True)
    rendered = render_role(SITE, workload(launcher), launcher, injection, service_account="mnist-launcher")
    pod = rendered.render_pod(PodIdentity("a", 0), injection.env)
    spec = pod["spec"]
    assert isinstance(spec, dict)
    assert spec["serviceAccountName"] == "mine"
    assert "automountServiceAccountToken" not in spec


def test_ssh_keys_of_the_user_are_kept() -> None:
    mount = {"name": "mine", "mountPath": SSH_FOLDER}
    template = {"spec": {"containers": [{"name": "main", "volumeMounts": [mount]}]}}
    worker = role(template=template)
    rendered = render_role(SITE, workload(worker, rules=Rules(ssh_roles=("worker",))), worker, Injection())
    (container,) = rendered.containers
    assert container.written["volumeMounts"] == [mount]

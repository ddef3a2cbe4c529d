"""Tests for the chart on a real cluster: the operator runs in pods with the rights of the chart.

Tests run in the order of the file; each continues with the cluster as the previous one left it.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml
from msgspec import Struct
from msgspec.structs import replace

from argosy import __version__
from argosy.install.chart import Chart, chart_folder
from argosy.operator.settings import IMAGE, NAME
from tests.support.builders import RunBuilder, run
from tests.support.cluster import images
from tests.support.cluster.release import Release, older_chart
from tests.support.cluster.running import RunningCluster
from tests.support.local_control_plane import ARGOSY
from tests.support.waiting import retry_until

pytestmark = [pytest.mark.cluster, pytest.mark.sequential, pytest.mark.root, pytest.mark.timeout(300)]

HOME = "jobs"
DEFINITION = "trainingruns.argosy.dev"
ACCOUNT = "system:serviceaccount:argosy-system:argosy-operator"
SLOT = "example.com/slot"
GO_ON = "touch /tmp/go"
WAITING = f"trap 'exit 1' TERM; while [ ! -e {GO_ON.split()[1]} ]; do sleep 0.2; done"
"""A worker that ends when somebody says so."""
MPI = """
from mpi4py import MPI
world = MPI.COMM_WORLD
print("rank", world.rank, "of", world.size, "total", world.allreduce(world.rank + 1))
"""


CLAIM: list[dict[str, object]] = [
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "checkpoints"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "by-hand",
            "hostPath": {"path": "/tmp/argosy-checkpoints-of-a-test", "type": "DirectoryOrCreate"},
        },
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "checkpoints", "namespace": HOME},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "by-hand",
            "volumeName": "checkpoints",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    },
]
"""A claim that pods of the restricted standard may mount."""


def template(*command: str) -> dict[str, object]:
    return {
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": images.PYTHON,
                    "command": list(command),
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        }
    }


@pytest.fixture(scope="module")
def release(cluster: RunningCluster) -> Iterator[Release]:
    """Yield a release without an operator, and with a namespace that has the restricted pod standard."""
    cluster.kubectl("create", "namespace", HOME)
    cluster.kubectl("label", "namespace", HOME, "pod-security.kubernetes.io/enforce=restricted")
    yield Release(cluster)
    cluster.kubectl("delete", "namespace", HOME, "argosy-system", "--wait=false")
    cluster.kubectl("delete", "crd", DEFINITION, "aresjobs.ares.io", "--wait=false")


def submit(cluster: RunningCluster, job: RunBuilder) -> None:
    cluster.kubectl("apply", "-n", HOME, "-f", "-", stdin=json.dumps(replace(job, namespace=HOME).build()))


def status(cluster: RunningCluster, name: str) -> dict[str, object]:
    return cast("dict[str, object]", cluster.get("tr", "-n", HOME, name).get("status", {}))


def until_phase(cluster: RunningCluster, name: str, phase: str) -> None:
    def reached() -> bool:
        current = status(cluster, name)
        assert current.get("phase") == phase, current
        return True

    retry_until(reached, 90)


def uids(cluster: RunningCluster, job: str) -> dict[str, str]:
    items = cluster.get("pods", "-n", HOME, "-l", f"argosy.dev/job={job}")["items"]
    pods = [pod["metadata"] for pod in cast("list[dict[str, dict[str, str]]]", items)]
    return {pod["name"]: pod["uid"] for pod in pods}


def go_on(cluster: RunningCluster, job: str) -> None:
    for pod in uids(cluster, job):
        cluster.kubectl("exec", "-n", HOME, pod, "--", *GO_ON.split())


def waiting(name: str) -> RunBuilder:
    return run(name).role("worker", 2, template=template("sh", "-c", WAITING))


def mpi(name: str) -> RunBuilder:
    launcher = template("mpiexec", "-n", "2", "python3", "-c", MPI)
    sleeper = template()
    del cast("dict[str, list[dict[str, object]]]", sleeper["spec"])["containers"][0]["command"]
    job = run(name, framework="mpi").having(options={"implementation": "mpich"})
    return job.role("launcher", 1, template=launcher).role("worker", 2, template=sleeper)


class AuditedRequest(Struct, frozen=True):
    """One request in the audit log of the API server."""

    user: str
    pod: str
    verb: str
    resource: str
    name: str
    code: int

    @property
    def right(self) -> tuple[str, str]:
        return self.verb, self.resource


def requests(cluster: RunningCluster) -> list[AuditedRequest]:
    """Return all requests about objects since the cluster was started, in order."""
    log = (cluster.folder / "logs" / "audit.log").read_text().rpartition("\n")[0]
    entries = [entry for entry in map(json.loads, log.splitlines()) if "objectRef" in entry]
    return [
        AuditedRequest(
            user=entry["user"].get("username", ""),
            pod="".join(entry["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", ())),
            verb=entry["verb"],
            resource="/".join(filter(None, map(entry["objectRef"].get, ("resource", "subresource")))),
            name=entry["objectRef"].get("name", ""),
            code=entry.get("responseStatus", {}).get("code", 0),
        )
        for entry in sorted(entries, key=lambda entry: str(entry["requestReceivedTimestamp"]))
    ]


def holder(release: Release) -> str:
    """Return the name of the leading pod."""
    lease = cast("dict[str, dict[str, str]]", release.cluster.get("lease", "-n", release.namespace, NAME))
    return lease["spec"].get("holderIdentity", "").split("_")[0]


def chart_version(cluster: RunningCluster) -> str:
    """Return the version of the older chart if the CRD in the cluster is from it."""
    metadata = cast("dict[str, dict[str, str]]", cluster.get("crd", DEFINITION)["metadata"])
    return metadata["annotations"].get("made-by", "")


def test_argosy_installs_upgrades_and_uninstalls_the_operator(release: Release) -> None:
    cluster = release.cluster
    output = argosy(cluster, "install")
    assert "2 of 2 replicas ready" in output
    submit(cluster, waiting("before"))
    until_phase(cluster, "before", "Running")
    assert "is installed in namespace argosy-system already" in argosy(cluster, "install", code=1)
    argosy(cluster, "upgrade", "--set", "replicas=1", "--set", "podDisruptionBudget.enabled=false")
    assert len(release.pods()) == 1
    assert cluster.get("pdb", "-A")["items"] == [], "what is no longer part of it is gone"
    argosy(cluster, "upgrade", "--set", "log.level=debug")
    assert len(release.pods()) == 1, "a value that was given before stays"
    assert "kept: CRDs and jobs" in argosy(cluster, "uninstall")
    assert release.helm("list", "-q").stdout == ""
    left = cluster.kubectl("get", "all,clusterrole,clusterrolebinding", "-A", "-l", LABEL, "-o", "name")
    retry_until(lambda: not release.pods())
    stays = ("pod/", "-editor-role", "-viewer-role")
    assert [line for line in left.stdout.splitlines() if not any(part in line for part in stays)] == []
    assert status(cluster, "before")["phase"] == "Running"
    assert len(uids(cluster, "before")) == 2


LABEL = "app.kubernetes.io/name=argosy"


def test_helm_installs_two_replicas_with_their_service_account(release: Release, tmp_path: Path) -> None:
    """The previous version is installed, which the next test upgrades."""
    cluster = release.cluster
    chart = older_chart(tmp_path, "0.0.9")
    crd = chart / "files" / "crds" / "argosy.dev_trainingruns.yaml"
    definition = yaml.safe_load(crd.read_text())
    definition["metadata"]["annotations"] = {"made-by": "0.0.9"}
    crd.write_text(yaml.safe_dump(definition))
    release.install("--set", f"image.tag={__version__}", "--take-ownership", chart=chart)
    pods = release.pods()
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1", "node-2"}
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == {"argosy-operator"}
    assert chart_version(cluster) == "0.0.9"
    names = {str(pod["metadata"]["name"]) for pod in pods}
    retry_until(lambda: holder(release) in names)  # the one before may have gone without a word
    until_phase(cluster, "before", "Running")
    go_on(cluster, "before")
    until_phase(cluster, "before", "Succeeded")


def test_helm_upgrade_updates_crds_and_does_not_affect_running_jobs(release: Release) -> None:
    cluster = release.cluster
    submit(cluster, waiting("through"))
    until_phase(cluster, "through", "Running")
    before, operators = uids(cluster, "through"), release.pods()
    release.upgrade()
    assert chart_version(cluster) == ""
    after = release.pods()
    assert not {pod["metadata"]["name"] for pod in operators} & {pod["metadata"]["name"] for pod in after}
    assert {_image(pod) for pod in after} == {IMAGE}
    assert uids(cluster, "through") == before
    go_on(cluster, "through")
    until_phase(cluster, "through", "Succeeded")
    assert not status(cluster, "through").get("restarts")


def test_dependencies_and_remote_exec_work_with_the_rights_of_the_chart(
    release: Release,
) -> None:
    """Helpers in pods need the Service, its certificate, our image, and accounts for launchers."""
    cluster = release.cluster
    stages = run("stages").role("data", 1, template=template("sh", "-c", "echo made"))
    after = {"dependsOn": [{"role": "data", "phase": "Succeeded"}], "template": template("echo", "used")}
    submit(cluster, stages.role("train", 1, **after))
    submit(cluster, mpi("mpi"))
    until_phase(cluster, "stages", "Succeeded")
    until_phase(cluster, "mpi", "Succeeded")
    logs = cluster.kubectl("logs", "-n", HOME, "mpi-launcher-0").stdout
    assert sorted(logs.splitlines()) == ["rank 0 of 2 total 3", "rank 1 of 2 total 3"]


def test_other_replica_leads_after_the_leader_is_deleted(release: Release) -> None:
    cluster = release.cluster
    first = holder(release)
    force = ("--grace-period=0", "--force")
    cluster.kubectl("delete", "pod", "-n", release.namespace, first, *force)
    submit(cluster, waiting("taken-over"))
    until_phase(cluster, "taken-over", "Running")
    assert holder(release) not in ("", first)  # the other one, or the one in place of the first
    cluster.kubectl("rollout", "status", "-n", release.namespace, "deployment/argosy-operator", timeout=90)


def test_jobs_survive_an_uninstallation_and_are_continued_after_reinstallation(release: Release) -> None:
    cluster = release.cluster
    before = uids(cluster, "taken-over")
    release.uninstall()
    assert uids(cluster, "taken-over") == before
    assert status(cluster, "taken-over")["phase"] == "Running"
    assert len(cast("list[object]", cluster.get("tr", "-n", HOME)["items"])) == 5
    release.install()
    go_on(cluster, "taken-over")
    until_phase(cluster, "taken-over", "Succeeded")
    assert uids(cluster, "taken-over") == before
    assert "belongs to the Helm release argosy" in argosy(cluster, "install", code=1)


def test_evictions_are_held_back_with_the_rights_of_the_chart(release: Release) -> None:
    cluster = release.cluster
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(CLAIM))
    checkpoint = {"store": "pvc://checkpoints", "onDrain": "Save"}
    submit(cluster, waiting("held").having(checkpoint=checkpoint))

    def least() -> object:
        budget = cast(
            "dict[str, dict[str, object]]", cluster.get("pdb", "-n", HOME, "held-trainingrun-checkpoint")
        )
        return budget["spec"]["minAvailable"]

    until_phase(cluster, "held", "Running")
    retry_until(lambda: least() == 2)
    go_on(cluster, "held")
    until_phase(cluster, "held", "Succeeded")
    cluster.kubectl("delete", "tr", "-n", HOME, "held", timeout=90)
    cluster.kubectl("delete", "pvc,pv", "-n", HOME, "checkpoints", timeout=90)


def test_deleted_jobs_leave_no_objects(release: Release) -> None:
    cluster = release.cluster
    cluster.kubectl("delete", "tr", "-n", HOME, "--all", timeout=90)
    kinds = "pods,services,serviceaccounts,roles,rolebindings"
    ours = ("get", kinds, "-n", HOME, "-l", "app.kubernetes.io/managed-by=argosy", "-o", "name")
    retry_until(lambda: cluster.kubectl(*ours).stdout == "")


NOT_ASKED_FOR = {
    ("update", "trainingruns/finalizers"): "asked of owners where the cluster enforces that",
    ("update", "aresjobs/finalizers"): "asked of owners where the cluster enforces that",
    ("update", "aresjobs/status"): "AresJobs, of which this module makes none",
    ("patch", "aresjobs"): "AresJobs, of which this module makes none",
    ("patch", "pods"): "AresJobs whose annotations change",
    ("get", "pods/exec"): "held to be granted to launchers",
    ("create", "pods/exec"): "held to be granted to launchers",
    ("delete", "trainingruns"): "jobs with a time to live",
    ("patch", "services"): "a service that somebody changed",
    ("patch", "serviceaccounts"): "an account that somebody changed",
    ("patch", "rolebindings"): "a binding that somebody changed",
    ("patch", "roles"): "pods of a job that come later than others",
    ("patch", "events"): "what happens again",
    ("update", "secrets"): "a certificate that is old",
    ("watch", "checkpointbackups"): "runs whose processes are saved, once there is one",
    ("create", "checkpointbackups"): "runs whose processes are saved",
    ("patch", "checkpointbackups"): "a backup of such a run that somebody changed",
}
"""Rights that nothing in this module needed, with what needs them."""


def test_operator_uses_exactly_the_rights_of_the_chart(release: Release) -> None:
    """The audit log of the API server has all requests since the cluster was started."""
    used: set[tuple[str, str]] = set()
    refused: set[tuple[str, str]] = set()
    installed = True
    for request in requests(release.cluster):
        if request.user == ACCOUNT:
            used.add(request.right)
            if installed and request.code == 403:
                refused.add(request.right)
        elif request.name.startswith("argosy-operator"):
            # Helm takes operator and rights away at once: it may come too late to give its Lease back.
            if request.verb == "delete" and "role" in request.resource:
                installed = False
            elif request.resource == "deployments" and request.verb in ("create", "patch"):
                installed = True
    assert refused == set()
    chart = Chart(chart_folder())
    rules = [
        rule
        for obj in chart.objects(release.namespace, chart.values())
        if not cast("dict[str, str]", obj["metadata"])["name"].endswith("-role")  # those are for people
        for rule in cast("list[dict[str, list[str]]]", obj.get("rules", []))
    ]
    granted = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    groups = {right for right in granted if right[1] == "podgroups"}  # there are none on this cluster
    lists = {
        ("list", resource) for verb, resource in granted if verb == "list"
    }  # a watch may bring the list itself
    deletes = {right for right in granted if right[0] in ("get", "delete")}
    assert used <= granted
    assert granted - used - groups - lists - deletes - set(NOT_ASKED_FOR) == set()


def test_one_namespace_without_features_needs_fewer_rights(release: Release) -> None:
    cluster = release.cluster
    off = ("gang.backend=none", "features.remoteExec=false")
    release.upgrade(*(word for setting in (*off, f"watchNamespace={HOME}") for word in ("--set", setting)))
    now = {str(pod["metadata"]["name"]) for pod in release.pods()}
    retry_until(lambda: holder(release) in now)
    submit(cluster, run("narrow").role("worker", 1, template=template("true")))
    until_phase(cluster, "narrow", "Succeeded")
    elsewhere = run("elsewhere").role("worker", 1, template=template("true"))
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(elsewhere.build()))
    submit(cluster, mpi("refused"))
    retry_until(lambda: "features.remoteExec=true" in str(status(cluster, "refused").get("message")))
    assert {
        request.right for request in requests(cluster) if request.pod in now and request.code == 403
    } == set()
    ignored = cast("dict[str, object]", cluster.get("tr", "elsewhere").get("status", {}))
    assert not ignored.get("observedGeneration"), "the jobs of others are not looked at"
    cluster.kubectl("delete", "tr", "elsewhere")


def offer(cluster: RunningCluster, slots: int) -> None:
    """Set the capacity of the first node for a resource that only these tests request."""
    patch = json.dumps({"status": {"capacity": {SLOT: str(slots)}, "allocatable": {SLOT: str(slots)}}})
    cluster.kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", patch)


@pytest.mark.long  # tests/e2e/test_gangs.py, and tests/install/test_rbac.py for its rights
def test_builtin_gang_scheduler_admits_gangs_once_they_fit(release: Release) -> None:
    """Acceptance case 53 for a single namespace; its operator must see the pods of all namespaces."""
    cluster = release.cluster
    chosen = ("gang.backend=builtin", f"watchNamespace={HOME}")
    release.upgrade(*(word for setting in chosen for word in ("--set", setting)))
    now = {str(pod["metadata"]["name"]) for pod in release.pods()}
    retry_until(lambda: holder(release) in now)
    worker = template("sh", "-c", WAITING)
    main = cast("dict[str, list[dict[str, object]]]", worker["spec"])["containers"][0]
    main["resources"] = {"limits": {SLOT: "1"}}
    offer(cluster, 2)
    submit(cluster, run("gang").role("worker", 3, template=worker).gang())
    retry_until(lambda: status(cluster, "gang").get("reason") == "Queued")
    assert uids(cluster, "gang") == {}
    offer(cluster, 3)
    until_phase(cluster, "gang", "Running")
    go_on(cluster, "gang")
    until_phase(cluster, "gang", "Succeeded")
    assert {
        request.right for request in requests(cluster) if request.pod in now and request.code == 403
    } == set()
    offer(cluster, 0)


def argosy(cluster: RunningCluster, *words: str, code: int = 0) -> str:
    command = [str(ARGOSY), *words, "--kubeconfig", str(cluster.server.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def _image(pod: dict[str, dict[str, object]]) -> str:
    return cast("list[dict[str, str]]", pod["spec"]["containers"])[0]["image"]

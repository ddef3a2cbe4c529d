"""Acceptance cases 1 to 12 of et-operator's specification: the start of a job and the files of its pods.

The ConfigMap of case 3 and the script of case 4 are tested with the ConfigMap.
"""

import pytest

from argosy.dialects.et.attach import SSHD_COMMAND
from argosy.dialects.et.files import deepspeed_hostfile, hostfile
from argosy.dialects.et.settings import EtSettings
from argosy.kinds.trainingjob import SSH_SECRET_ANNOTATION
from argosy.workload.model import Workload
from tests.support.et_simulator import LAUNCHER, EtSimulator, J, running_job, worker, workers
from tests.support.trainingjobs import REMOVED

W0, W1 = workers(0, 1)
COMMAND = "worker.template.spec.containers"
CONTAINER = {"name": "main", "image": "x"}


def pod_spec(job: EtSimulator, name: str) -> dict[str, object]:
    spec = job.cluster.rendered[name]["spec"]
    assert isinstance(spec, dict)
    return spec


def containers(job: EtSimulator, name: str, part: str = "containers") -> list[dict[str, object]]:
    listed = pod_spec(job, name).get(part, [])
    assert isinstance(listed, list)
    return listed


def mounts(container: dict[str, object]) -> dict[str, str]:
    """Return the volume at each path."""
    listed = container.get("volumeMounts", [])
    assert isinstance(listed, list)
    return {mount["mountPath"]: mount["name"] for mount in listed}


def env(container: dict[str, object]) -> dict[str, str]:
    listed = container.get("env", [])
    assert isinstance(listed, list)
    return {variable["name"]: variable.get("value", "") for variable in listed}


def volumes(job: EtSimulator, name: str) -> dict[str, dict[str, object]]:
    listed = pod_spec(job, name).get("volumes", [])
    assert isinstance(listed, list)
    return {volume["name"]: volume for volume in listed}


def role_rules(job: EtSimulator) -> dict[str, tuple[list[str], list[str]]]:
    """Return verbs and names that the launcher's Role has, by resource."""
    rules = job.cluster.children["Role", LAUNCHER].body["rules"]
    assert isinstance(rules, list)
    return {
        resource: (rule["verbs"], rule["resourceNames"]) for rule in rules for resource in rule["resources"]
    }


def test_case_1_a_new_job_gets_secret_workers_and_services_in_one_pass_and_no_launcher() -> None:
    job = EtSimulator()
    job.reconcile()
    assert sorted(job.pods) == [W0, W1]
    assert job.cluster.names("Secret") == [J]
    assert job.cluster.names("Service") == [W0, W1]
    assert {kind for kind, _ in job.cluster.children} == {"Secret", "Service"}
    assert job.status.phase == "Created"
    assert job.conditions() == ["Created", "WorkersCreated"]
    assert job.status.target_workers == [W0, W1]
    assert job.status.current_workers == []
    assert job.status.start_time == job.now
    for name in (W0, W1):
        spec = job.cluster.spec("Service", name)
        assert spec["clusterIP"] == "None"
        assert spec["publishNotReadyAddresses"] is True
        assert spec["ports"] == [
            {"name": "ssh-port", "port": 22},
            {"name": "kubeai-service-port", "port": 9009},
        ]
        assert spec["selector"] == {
            "group-name": "kai.alibabacloud.com",
            "training-job-name": J,
            "training-job-role": "worker",
            "replica-index": name[-1],
        }
        selected = job.cluster.rendered[name]["metadata"]["labels"]  # type: ignore[index]
        assert spec["selector"].items() <= selected.items()


def test_case_2_the_launcher_and_its_account_are_created_when_all_workers_run() -> None:
    job = EtSimulator()
    job.cluster.pending = {W1}
    job.run(5)
    assert LAUNCHER not in job.pods
    assert job.conditions() == ["Created", "WorkersCreated"]
    assert job.cluster.names("ServiceAccount") == []
    job.cluster.pending = set()
    job.run(1)
    job.reconcile()
    assert job.conditions() == ["Created", "WorkersCreated", "WorkersReady"]
    job.cluster.pending = {LAUNCHER}
    job.run(5)
    assert job.conditions() == ["Created", "WorkersCreated", "WorkersReady", "LauncherCreated"]
    assert LAUNCHER in job.pods
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        assert job.cluster.names(kind) == [LAUNCHER]
        assert job.cluster.labels(kind, LAUNCHER)["app"] == J
    assert job.status.phase == "Created"


def test_case_2_the_launcher_of_a_gang_is_created_with_the_workers_and_waits_for_them() -> None:
    job = EtSimulator({"schedulingPolicy": {"queue": "q"}})
    job.cluster.pending = {W1, LAUNCHER}
    job.run(5)
    assert sorted(job.pods) == [LAUNCHER, W0, W1], "the gang would never be complete without it"
    assert job.conditions() == ["Created", "WorkersCreated"]
    waits = [init for init in containers(job, LAUNCHER, "initContainers") if init["name"] == "argosy"]
    assert "worker=Running" in str(waits[0])
    job.cluster.pending = set()
    job.run(5)
    assert job.status.phase == "Running"
    assert job.conditions() == ["Created", "WorkersCreated", "WorkersReady", "LauncherCreated", "Running"]


def test_case_3_the_host_list_has_a_line_with_its_slots_for_every_worker() -> None:
    job = running_job()
    workload = job.api.dialect.to_workload(job.job)
    assert isinstance(workload, Workload)
    slots = workload.roles["worker"].slots
    assert slots == 1
    assert hostfile(job.hosts, slots) == f"{W0}:1\n{W1}:1\n"
    assert deepspeed_hostfile(job.hosts, slots) == f"{W0} slots=1\n{W1} slots=1\n"


def test_case_4_the_launcher_pod_has_its_init_container_mounts_and_account() -> None:
    job = running_job({"launcher.template.spec.restartPolicy": "Always"})
    launcher = containers(job, LAUNCHER)[0]
    assert set(mounts(launcher)) >= {"/etc/edl", "/etc/mpi", "/opt/kube", "/job"}
    init_containers = containers(job, LAUNCHER, "initContainers")
    assert [init["name"] for init in init_containers] == ["init-hostfile", "argosy-hosts"]
    assert pod_spec(job, LAUNCHER)["restartPolicy"] == "Never"
    assert pod_spec(job, LAUNCHER)["serviceAccountName"] == LAUNCHER
    config = volumes(job, LAUNCHER)["training-job-config"]["configMap"]
    assert isinstance(config, dict)
    assert config["name"] == f"{J}-config"
    for path in ("/etc/edl", "/job", "/opt/kube"):
        assert volumes(job, LAUNCHER)[mounts(launcher)[path]]["emptyDir"] == {}
    assert env(launcher)["HOROVOD_GLOO_TIMEOUT_SECONDS"]


def test_case_4_all_users_may_read_the_host_files_and_the_init_container_has_no_token() -> None:
    """Images with a user of their own need not name it in the template."""
    job = running_job()
    init = containers(job, LAUNCHER, "initContainers")[0]
    assert init.get("env", []) == []
    assert "chmod 644 /etc/edl/hostfile /job/hostfile" in str(init["command"])
    workload = job.api.dialect.to_workload(job.job)
    assert isinstance(workload, Workload)
    host_list = workload.rules.host_list
    assert host_list
    assert all(file.mode & 0o444 == 0o444 for file in host_list.files)


def test_case_5_workers_without_a_command_start_sshd_and_sleep() -> None:
    job = EtSimulator({"worker.template.spec.restartPolicy": "Always"})
    job.reconcile()
    assert containers(job, W0)[0]["command"] == list(SSHD_COMMAND)
    assert "/usr/sbin/sshd" in SSHD_COMMAND[2]
    assert "sleep 365d" in SSHD_COMMAND[2]
    assert pod_spec(job, W0)["restartPolicy"] == "Never"


def test_case_5_a_given_command_and_the_metadata_of_the_template_stay() -> None:
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    container = {**CONTAINER, "command": ["serve"]}
    job = EtSimulator({"worker.template": {"metadata": metadata, "spec": {"containers": [container]}}})
    job.reconcile()
    assert containers(job, W0)[0]["command"] == ["serve"]
    rendered = job.cluster.rendered[W0]["metadata"]
    assert isinstance(rendered, dict)
    assert rendered["labels"]["team"] == "a"
    assert rendered["annotations"]["note"] == "b"


def test_case_5_every_container_gets_the_keys_in_the_ssh_folder() -> None:
    two = [CONTAINER, {"name": "second", "image": "x"}]
    job = running_job({COMMAND: two, "sshAuthMountPath": "/home/user/.ssh"})
    files = {f"/home/user/.ssh/{name}" for name in ("id_rsa", "id_rsa.pub", "authorized_keys", "config")}
    for name, count in ((W0, 2), (LAUNCHER, 1)):
        assert [files <= set(mounts(container)) for container in containers(job, name)] == [True] * count
        secret = volumes(job, name)[J]["secret"]
        assert isinstance(secret, dict)
        assert secret["secretName"] == J


KEY_MODES: dict[str, tuple[dict[str, object], int]] = {
    "nothing said: root": ({}, 0o600),
    "another folder: not root": ({"sshAuthMountPath": "/home/me/.ssh"}, 0o444),
    "root with another folder": (
        {"sshAuthMountPath": "/job/.ssh", "worker.template.spec.securityContext": {"runAsUser": 0}},
        0o600,
    ),
    "a user in the template": ({"worker.template.spec.securityContext": {"runAsUser": 1000}}, 0o444),
    "not root": ({"worker.template.spec.securityContext": {"runAsNonRoot": True}}, 0o444),
}


@pytest.mark.parametrize(("changes", "want_mode"), KEY_MODES.values(), ids=KEY_MODES.keys())
def test_keys_can_be_read_by_the_user_of_the_pod_and_are_accepted_by_ssh(
    changes: dict[str, object], want_mode: int
) -> None:
    job = EtSimulator(changes)
    job.reconcile()
    secret = volumes(job, W0)[J]["secret"]
    assert isinstance(secret, dict)
    assert secret["defaultMode"] == want_mode


def test_case_6_kubexec_needs_no_secret_and_may_reach_only_the_pods_of_the_job() -> None:
    job = running_job({"launcherAttachMode": "kubexec"})
    assert job.cluster.names("Secret") == []
    for name in (W0, LAUNCHER):
        assert not any("secret" in volume for volume in volumes(job, name).values())
    launcher = containers(job, LAUNCHER)[0]
    assert env(launcher)["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    assert "/etc/mpi/kubexec.sh" in mounts(containers(job, W0)[0]), "daemons of Open MPI 4 want it to exist"
    assert "/opt/kube" in mounts(launcher)
    assert "sshd" not in str(containers(job, W0)[0]["command"])
    assert role_rules(job) == {
        "pods": (["get", "list", "watch"], [W0, W1]),
        "pods/exec": (["get", "create"], [W0, W1]),
        "configmaps": (["get"], [f"{J}-config"]),
    }


def test_case_6_a_new_worker_is_listed_only_when_the_role_names_it() -> None:
    job = running_job({"launcherAttachMode": "kubexec"})
    job.cluster.forbidden = {("Role", LAUNCHER)}
    job.scale_out(toAdd={"count": 1})
    job.run(10)
    assert worker(2) in job.pods
    assert job.hosts == [W0, W1]
    assert job.reasons("Warning") == ["RoleForbidden"]
    job.cluster.forbidden = set()
    job.run(5)
    assert role_rules(job)["pods/exec"][1] == workers(0, 1, 2)
    assert job.hosts == workers(0, 1, 2)


def test_case_7_a_named_ssh_secret_is_mounted_instead_of_a_generated_one() -> None:
    job = running_job(annotations={SSH_SECRET_ANNOTATION: "foo"})
    assert job.cluster.names("Secret") == []
    for name in (W0, LAUNCHER):
        secret = volumes(job, name)["foo"]["secret"]
        assert isinstance(secret, dict)
        assert secret["secretName"] == "foo"


def test_case_8_without_create_ssh_secret_no_secret_is_created() -> None:
    job = running_job(settings=EtSettings(create_ssh_secret=False))
    assert job.cluster.names("Secret") == []
    assert J in volumes(job, W0), "the administrator creates it"


def test_case_9_a_running_launcher_makes_the_job_running() -> None:
    job = running_job()
    assert job.phases == ["Created", "Running"]
    assert job.conditions() == ["Created", "WorkersCreated", "WorkersReady", "LauncherCreated", "Running"]
    assert job.condition("Running")[1:] == ("TrainingJobRunning", f"job(default/{J}) is running.")
    assert job.reasons() == ["TrainingJobCreated", "TrainingJobRunning"]
    assert job.status.current_workers == [W0, W1]
    assert job.status.replicas == 2
    assert job.status.selector == f"training-job-name={J},training-job-role=worker"
    assert job.hosts == [W0, W1]


def test_case_10_without_a_number_of_workers_there_is_one() -> None:
    job = running_job({"worker.replicas": REMOVED})
    assert job.status.target_workers == [W0]


INVALID: dict[str, tuple[dict[str, object], str]] = {
    "launcher without containers": (
        {"launcher.template": {"spec": {"containers": []}}},
        "spec.etReplicaSpecs.launcher.template.spec.containers",
    ),
    "no launcher": ({"etReplicaSpecs.launcher": REMOVED}, "spec.etReplicaSpecs.launcher"),
    "max below min": ({"worker.minReplicas": 2, "worker.maxReplicas": 1}, "maxReplicas"),
    "replicas above max": ({"worker.replicas": 10}, "spec.etReplicaSpecs.worker.replicas"),
    "replicas below min": ({"worker.minReplicas": 3}, "spec.etReplicaSpecs.worker.replicas"),
    "unknown enum value": ({"cleanPodPolicy": "Some"}, "spec.cleanPodPolicy"),
}


@pytest.mark.parametrize(("changes", "path"), INVALID.values(), ids=INVALID)
def test_case_10_an_invalid_job_fails_with_the_path_and_creates_nothing(
    changes: dict[str, object], path: str
) -> None:
    job = EtSimulator(changes)
    job.run(3)
    status, reason, message = job.condition("Failed")
    assert (job.status.phase, status, reason) == ("Failed", "True", "InvalidSpec")
    assert path in message
    assert not job.pods
    assert not job.cluster.children
    assert job.reasons() == ["InvalidSpec"]
    assert job.status.restart_count == 0


def test_case_10_an_edit_that_makes_the_spec_valid_starts_the_job_as_if_new() -> None:
    job = EtSimulator({"worker.replicas": 10, "restartPolicy": "OnFailure"})
    job.run(3)
    job.edit({"worker.replicas": 2})
    job.run(8)
    assert job.phases == ["Failed", "Created", "Running"]
    assert job.conditions() == ["Created", "WorkersCreated", "WorkersReady", "LauncherCreated", "Running"]
    assert job.status.restart_count == 0


def test_case_11_a_foreign_pod_is_left_alone_and_the_job_starts_when_it_is_gone() -> None:
    job = EtSimulator()
    job.cluster.foreign = {("Pod", W0)}
    job.run(5)
    assert W0 not in job.pods
    [message] = job.event_messages("NotManagedBy")
    assert W0 in message
    assert "not managed by" in message
    assert job.condition("WorkersCreated")[0] == "False"
    assert job.status.phase == "Created"
    job.cluster.foreign = set()
    job.run(8)
    assert job.status.phase == "Running"
    assert job.reasons("Warning") == ["NotManagedBy"]


def test_case_11_a_foreign_service_account_holds_the_launcher_back() -> None:
    job = EtSimulator()
    job.cluster.foreign = {("ServiceAccount", LAUNCHER)}
    job.run(8)
    assert LAUNCHER not in job.pods
    [message] = job.event_messages("NotManagedBy")
    assert f"ServiceAccount {LAUNCHER}" in message
    job.cluster.foreign = set()
    job.run(8)
    assert job.status.phase == "Running"


def test_case_12_a_quota_fails_the_creation_of_workers_but_not_the_job() -> None:
    job = EtSimulator()
    job.cluster.quota = lambda name: "exceeded quota: gpus" if name == W1 else ""
    job.run(5)
    assert job.condition("WorkersCreated") == ("False", "PodCreateFailed", "exceeded quota: gpus")
    assert job.status.phase == "Created"
    assert job.reasons("Warning") == ["PodCreateFailed"]
    job.cluster.quota = lambda name: ""
    job.run(8)
    assert job.status.phase == "Running"
    assert job.conditions() == ["Created", "WorkersCreated", "WorkersReady", "LauncherCreated", "Running"]

"""Acceptance cases 24 to 38 of the specification: defaults, validation and injection into pods."""

import json
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from argosy.dialects.ares.injection import inject
from argosy.frameworks.bagua import share
from argosy.frameworks.mpi import AS_ROOT
from argosy.kinds.aresjob import FINALIZER, AresJob
from argosy.kinds.kubernetes import SecretMetadata, Service
from argosy.plan.actions import ActionResult, ActionStatus
from argosy.plan.diff import remove
from argosy.workload.observed import Observed
from tests.support.aresjobs import API, CaseTable, job, messages, problems, simulate, template, workload_of
from tests.support.workloads import existing, pods

CASES = CaseTable()

DOMAIN = "ns.svc.cluster.local"
BAD_NAME = "must consist of lower case letters"

INVALID: dict[str, tuple[AresJob, str]] = {
    "24. empty roleSpecs": (job(roles={}), "spec.roleSpecs: must have at least one role"),
    "24. role PsWorker": (job(roles={"PsWorker": {}}), f"spec.roleSpecs.PsWorker: 'PsWorker': {BAD_NAME}"),
    "24. role psWorker": (job(roles={"psWorker": {}}), f"spec.roleSpecs.psWorker: 'psWorker': {BAD_NAME}"),
    "24. replicas 0": (
        job(roles={"worker": {"replicas": 0}}),
        "spec.roleSpecs.worker.replicas: invalid value 0: must",
    ),
    "24. no containers": (
        job(roles={"worker": {"template": {"spec": {"containers": []}}}}),
        "spec.roleSpecs.worker.template.spec.containers: must have at least one container",
    ),
    "24. dependence without roleNames and mpiHostFile": (
        job(roles={"worker": {"dependence": {}}}),
        "spec.roleSpecs.worker.dependence.roleNames: must name a role to wait for",
    ),
    "24. unknown framework": (
        job("pytroch"),
        'spec.frameworkType: unknown framework: pytroch; did you mean "pytorch"? (known frameworks: ',
    ),
    "25. implementation: intel": (
        job(framework={"mpi": {"implementation": "intel"}}),
        "spec.framework.mpi.implementation: unsupported mpi implementation 'intel'",
    ),
    "31. tensorflow container not named tensorflow": (
        job("tensorflow", roles={"worker": {"template": template("main")}}),
        "spec.roleSpecs.worker.template.spec.containers: framework tensorflow requires a container",
    ),
    "31. chief replicas 2": (
        job("tensorflow", roles={"chief": {"replicas": 2}, "worker": {}}),
        "spec.roleSpecs.chief.replicas: invalid value 2: must be 1 for role chief",
    ),
    "34. bagua static with 1 port": (
        job("bagua", roles={"master": {}}, availablePorts=[1]),
        "spec.availablePorts: must have at least 2 ports; has 1",
    ),
    "34. elastic with 3 ports for 2 workers": (
        job(
            "bagua",
            roles={"worker": {"replicas": 2}, "etcd": {}},
            framework={"bagua": {"enableElastic": True}},
            availablePorts=[1, 2, 3],
        ),
        "spec.availablePorts: must have at least 4 ports; has 3",
    ),
    "37. MPI job without launcher": (job("mpi"), "spec.roleSpecs: framework mpi requires a role 'launcher'"),
    "37. dask without scheduler": (
        job("dask", roles={"launcher": {"template": template("dask", ports=[{"containerPort": 1}])}}),
        "spec.roleSpecs: framework dask requires a role 'scheduler'",
    ),
    "37. bagua without master": (
        job("bagua", availablePorts=[1, 2]),
        "spec.roleSpecs: framework bagua requires a role 'master'",
    ),
    "37. jobPhasePolicy naming an absent role": (
        job(jobPhasePolicy={"failed": [["chief"]]}),
        "spec.jobPhasePolicy.failed: unknown role chief",
    ),
    "37. worker: null": (
        job(roles={"worker": None}),
        "spec.roleSpecs.worker: must not be null; define the role",
    ),
    "49. a dependency on an unknown role": (
        job(roles={"worker": {"dependence": {"roleNames": ["ps"]}}}),
        'spec.roleSpecs.worker.dependence.roleNames: unknown role "ps"',
    ),
    "49. a cycle": (
        job(roles={"a": {"dependence": {"roleNames": ["b"]}}, "b": {"dependence": {"roleNames": ["a"]}}}),
        "spec.roleSpecs.a.dependence.roleNames: roles wait for each other: a → b → a",
    ),
    "too many replicas of a role": (
        job(roles={"worker": {"replicas": 2**31 - 1}}),
        "spec.roleSpecs.worker.replicas: invalid value 2147483647: must be from 1 to 99999",
    ),
    "too many replicas in total": (
        job(roles={"a": {"replicas": 99_999}, "b": {}}),
        "spec.roleSpecs: invalid value: 100000 pods in total; must be at most 99999",
    ),
    "dependence on the same role": (
        job(roles={"a": {"dependence": {"roleNames": ["a"]}}}),
        "spec.roleSpecs.a.dependence.roleNames: a role cannot wait for itself",
    ),
    "no roleSpecs": (replace(job(), spec={"frameworkType": "custom"}), "spec.roleSpecs: must have"),
    "empty spec": (replace(job(), spec={}), 'spec.frameworkType: unknown framework: "" (known'),
    "empty list in jobPhasePolicy": (
        job(jobPhasePolicy={"succeeded": [[]]}),
        "spec.jobPhasePolicy.succeeded: must not contain an empty list",
    ),
    "port 0": (
        job("bagua", roles={"master": {}}, availablePorts=[0, 1]),
        "spec.availablePorts: invalid value 0: must be between 1 and 65535",
    ),
    "same port twice": (
        job("bagua", roles={"master": {}}, availablePorts=[7, 7]),
        "spec.availablePorts: must not contain a port twice",
    ),
    "other controller": (
        job(roles={"worker": {"controller": "Deployment"}}),
        "spec.roleSpecs.worker.controller: controller Deployment is not supported",
    ),
    "unknown restartPolicy": (
        job(roles={"worker": {"restartPolicy": "Sometimes"}}),
        "spec.roleSpecs.worker.restartPolicy: invalid value 'Sometimes': must be Never or OnFailure or",
    ),
    "unknown rolePhasePolicy": (
        job(roles={"worker": {"rolePhasePolicy": {"failed": "MostPods"}}}),
        "spec.roleSpecs.worker.rolePhasePolicy.failed: invalid value 'MostPods': must be AnyPod or",
    ),
    "unknown rolePhase": (
        job(roles={"a": {}, "b": {"dependence": {"roleNames": ["a"], "rolePhase": "Ready"}}}),
        "spec.roleSpecs.b.dependence.rolePhase: invalid value 'Ready': must be Pending or Starting",
    ),
    "mpiHostFile in the root folder": (
        job(roles={"a": {"dependence": {"mpiHostFile": "/hostfile"}}}),
        "spec.roleSpecs.a.dependence.mpiHostFile: '/hostfile' has no folder of its own",
    ),
    "mpiHostFile with a relative path": (
        job(roles={"a": {"dependence": {"mpiHostFile": "/etc/mpi/../hostfile"}}}),
        "spec.roleSpecs.a.dependence.mpiHostFile: '/etc/mpi/../hostfile' is not the absolute path",
    ),
    "init container named initializer": (
        job(
            roles={
                "a": {},
                "b": {
                    "dependence": {"roleNames": ["a"]},
                    "template": {
                        "spec": {"containers": [{"name": "x"}], "initContainers": [{"name": "initializer"}]}
                    },
                },
            }
        ),
        "spec.roleSpecs.b.template.spec.initContainers[0].name: invalid value 'initializer': reserved",
    ),
    "minAvailable above the number of pods": (
        job(runPolicy={"schedulingPolicy": {"minAvailable": 2}}),
        "spec.runPolicy.schedulingPolicy.minAvailable: invalid value 2: must be between 0 and 1",
    ),
    "negative limit": (
        job(runPolicy={"backoffLimit": -1}),
        "spec.runPolicy.backoffLimit: invalid value -1: must be at least 0",
    ),
    "restartScope Job with restartPolicy Always": (
        job(roles={"worker": {"restartPolicy": "Always"}}, runPolicy={"restartScope": "Job"}),
        "spec.runPolicy.restartScope: invalid value Job: not supported while role worker has",
    ),
    "name with a dot": (job(name="a.b"), "metadata.name: the name of its last pod of role worker, 'a.b-"),
    "name that begins with a digit": (
        job(name="7b"),
        "metadata.name: the name of the service of role worker,",
    ),
    "text for a number": (
        job(roles={"worker": {"replicas": "two"}}),
        "spec.roleSpecs[...].replicas: expected `int | null`, got `str`",
    ),
    "several errors: in a fixed order": (
        job(roles={"b": {"replicas": -1}, "a": None}, ttlSecondsAfterFailed=-1),
        "spec.roleSpecs.a: must not be null; define the role or remove its name;"
        " spec.roleSpecs.b.replicas: invalid value -1: must be from 1 to 99999;"
        " spec.ttlSecondsAfterFailed: invalid value -1: must be at least 0",
    ),
}


@pytest.mark.parametrize(("obj", "want"), INVALID.values(), ids=INVALID.keys())
def test_invalid_spec(obj: AresJob, want: str) -> None:
    assert problems(obj).startswith(want)
    refused = simulate(obj).reconcile()
    assert (refused.phase, refused.condition("Failed")[:2]) == ("Failed", ("True", "InvalidDefinition"))
    assert refused.condition("Failed")[2] == problems(obj)
    assert not refused.actions
    assert refused.obj.spec == obj.spec, "an invalid job's spec is never changed"
    assert (refused.status.completion_time, refused.status.start_time) == (None, None)
    assert not refused.reconcile().events, "reported once"


FINE = {
    "24. Role ps-worker is fine": job(roles={"ps-worker": {}}),
    "framework demo": job("demo", roles={"any": {}, "other": {"replicas": 3}}),
    "name that begins with a digit, no service": job("standalone", name="7b"),
    "empty jobPhasePolicy": job(jobPhasePolicy={"failed": [], "succeeded": []}),
    "dependence with mpiHostFile only": job(roles={"a": {"dependence": {"mpiHostFile": "/etc/m/h"}}}),
}


@pytest.mark.parametrize("obj", FINE.values(), ids=FINE.keys())
def test_valid_spec(obj: AresJob) -> None:
    assert problems(obj) == ""


MPI = {
    "25. mpi block with only replicasPerNode: 4 -> valid, implementation ompi": (
        {"replicasPerNode": 4},
        {"replicasPerNode": 4, "implementation": "ompi"},
    ),
    "no mpi block: defaults": (None, {"replicasPerNode": 1, "implementation": "ompi"}),
    "25. … only implementation: mpich -> 1 slot": (
        {"implementation": "mpich"},
        {"replicasPerNode": 1, "implementation": "mpich"},
    ),
}


@pytest.mark.parametrize(("block", "want"), MPI.values(), ids=MPI.keys())
def test_25_partial_scheduling_policy(block: object, want: object) -> None:
    framework = {"mpi": block} if block else {}
    obj = job("mpi", roles={"launcher": {}, "worker": {}}, framework=framework)
    assert simulate(obj).reconcile().obj.spec["framework"] == {"mpi": want}


@CASES("26. pod template refused by the API (422) -> invalid, children already made are deleted")
def a_template_refused_by_the_api_takes_away_what_was_made() -> None:
    begun = simulate(job(roles={"a": {}, "b": {}})).start()
    refusal = ActionResult(
        "Pod",
        "job-b-0",
        ActionStatus.SPEC_REJECTED,
        "spec.roleSpecs.b.template.spec.x: no",
        role="b",
        index=0,
    )
    observed = Observed(
        pods=pods("P", "a"), failed_actions=(refusal,), children=(existing(Service, "job-a"),)
    )
    refused = begun.reconcile_observed(observed)
    assert refused.phase == "Failed"
    assert refused.condition("Failed") == ("True", "InvalidDefinition", refusal.message)
    assert refused.deleted == ["job-a-0"]
    assert remove(observed.children[0]) in refused.actions
    later = refused.reconcile()
    assert (later.phase, later.created, later.events) == ("Failed", [], ()), "not tried again before an edit"
    cured = later.with_spec(roleSpecs={"b": {"replicas": 2}}).reconcile()
    assert cured.condition("Failed")[:2] == ("False", "DefinitionChanged")
    assert (cured.phase, cured.reconcile().created) == ("Pending", ["a-0", "b-0", "b-1"])


@CASES(
    "27. minimal job -> stored spec shows replicas 1, Never, failed AnyPod, succeeded AllPods, "
    "cleanPodPolicy None, controller Pod"
)
def a_minimal_job_shows_what_is_in_force() -> None:
    stored = simulate(job()).reconcile().obj.spec
    role = stored["roleSpecs"]["worker"]  # type: ignore[index]
    assert role == {
        "template": template(),
        "replicas": 1,
        "restartPolicy": "Never",
        "rolePhasePolicy": {"failed": "AnyPod", "succeeded": "AllPods"},
        "controller": "Pod",
    }
    assert stored["runPolicy"] == {"cleanPodPolicy": "None"}
    assert stored["jobPhasePolicy"] == {"failed": [["worker"]], "succeeded": [["worker"]]}


def test_defaults_are_written_once_and_other_fields_are_not() -> None:
    obj = job(roles={"worker": {"replicas": 2, "restartPolicy": ""}}, unheardOf=1)
    assert API.spec_patch(obj) == {
        "spec": {
            "roleSpecs": {
                "worker": {
                    "restartPolicy": "Never",
                    "rolePhasePolicy": {"failed": "AnyPod", "succeeded": "AllPods"},
                    "controller": "Pod",
                }
            },
            "runPolicy": {"cleanPodPolicy": "None"},
            "jobPhasePolicy": {"failed": [["worker"]], "succeeded": [["worker"]]},
        }
    }
    assert API.spec_patch(simulate(obj).reconcile().obj) is None


@CASES("44. Delete a job … carrying ares.io/ares-finalizer -> object, pods and services are gone")
def the_finalizer_of_the_original_is_taken_away() -> None:
    meta = replace(job().metadata, finalizers=["other", FINALIZER])
    patch = API.spec_patch(replace(simulate(job()).reconcile().obj, metadata=replace(meta, generation=2)))
    assert patch == {"metadata": {"finalizers": ["other"]}}


def env(obj: AresJob, role: str, index: int = 0) -> Mapping[str, str]:
    workload = workload_of(obj)
    return inject(workload, workload.roles[role], index).env


@CASES(
    "28. pytorch master 1 + worker 2, port 40000 -> RANK 0/1/2, WORLD_SIZE 3, MASTER_PORT 40000, "
    "MASTER_ADDR 0.0.0.0 on master and <job>-master-0.<job>-master.<ns>.svc.cluster.local on workers; "
    "service only for master; worker pods carry the initializer"
)
def pytorch() -> None:
    master = {"template": template("pytorch", ports=[{"name": "pytorch", "containerPort": 40000}])}
    obj = job("pytorch", roles={"master": master, "worker": {"replicas": 2}})
    environments = [env(obj, "master"), env(obj, "worker", 0), env(obj, "worker", 1)]
    assert [variables["RANK"] for variables in environments] == ["0", "1", "2"]
    assert {variables["WORLD_SIZE"] for variables in environments} == {"3"}
    assert {variables["MASTER_PORT"] for variables in environments} == {"40000"}
    first = f"job-master-0.job-master.{DOMAIN}"
    assert [variables["MASTER_ADDR"] for variables in environments] == ["0.0.0.0", first, first]
    workload = workload_of(obj)
    assert workload.rules.services == ("master",)
    injection = inject(workload, workload.roles["worker"], 0)
    assert injection.initializer is not None
    assert injection.initializer.name == "initializer"
    assert injection.initializer.arguments[:7] == (
        *("cache", "--key", "ns.job", "--cacheURI", "$(ARGOSY_URL)", "--roles", "master"),
    )
    assert inject(workload, workload.roles["master"], 0).initializer is None


def test_pytorch_without_a_port_gets_one() -> None:
    workload = workload_of(job("pytorch", roles={"master": {}}))
    injection = inject(workload, workload.roles["master"], 0)
    assert [(port.name, port.number) for port in injection.ports] == [("pytorch", 23456)]


def tf_config(obj: AresJob, role: str, index: int = 0) -> Mapping[str, object]:
    config: Mapping[str, object] = json.loads(env(obj, role, index).get("TF_CONFIG", "{}"))
    return config


def host(role: str, index: int, port: int = 2222) -> str:
    return f"job-{role}-{index}.job-{role}.{DOMAIN}:{port}"


@CASES(
    "29. tensorflow worker 1 only -> no TF_CONFIG; ps 1 + worker 2 -> cluster with 2222 ports; dynamic "
    "worker 1 -> only itself and ps; an evaluator is in no cluster"
)
def tensorflow() -> None:
    assert tf_config(job("tensorflow"), "worker") == {}
    obj = job("tensorflow", roles={"ps": {}, "worker": {"replicas": 2}, "evaluator": {}})
    cluster = {"ps": [host("ps", 0)], "worker": [host("worker", 0), host("worker", 1)]}
    task = {"type": "worker", "index": 1}
    assert tf_config(obj, "worker", 1) == {"cluster": cluster, "task": task, "environment": "cloud"}
    assert tf_config(obj, "evaluator")["task"] == {"type": "evaluator", "index": 0}
    roles = {"ps": {}, "worker": {"replicas": 2}}
    dynamic = job("tensorflow", roles=roles, framework={"tensorflow": {"enableDynamicWorker": True}})
    sparse = {"worker": {"1": host("worker", 1)}, "ps": [host("ps", 0)]}
    assert tf_config(dynamic, "worker", 1) == {"sparseCluster": sparse, "task": task}
    assert tf_config(dynamic, "ps")["sparseCluster"] == {"worker": {}, "ps": [host("ps", 0)]}


@CASES(
    "30. tensorflow chief + worker: worker restartPolicy becomes OnFailure; a worker pod failure does "
    "not fail the job; a chief failure does"
)
def tensorflow_with_a_chief() -> None:
    running = simulate(job("tensorflow", roles={"chief": {}, "worker": {"restartPolicy": "Never"}})).start()
    assert workload_of(running.obj).roles["worker"].restart == "OnFailure"
    hurt = running.reconcile(*pods("R", "chief"), *pods("R")).reconcile(*pods("R", "chief"), *pods("F"))
    assert (hurt.phase, hurt.deleted) == ("Running", ["job-worker-0"])
    assert hurt.reconcile(*pods("F", "chief"), *pods("R")).phase == "Failed"


def test_55_ssh_keys() -> None:
    """MPI, workers 2, sshKeys: a Secret before the first pods, for launcher and worker, created once."""
    roles = {"launcher": {}, "worker": {"replicas": 2}, "board": {}}
    obj = job("mpi", roles=roles, framework={"mpi": {"sshKeys": True}})
    assert workload_of(obj).rules.ssh_roles == ("launcher", "worker")
    assert env(obj, "launcher") == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        **AS_ROOT,
    }
    begun = simulate(obj).start()
    assert [child.name for child in begun.applied(SecretMetadata)] == ["job-ssh"]
    running = begun.reconcile(*pods("R", "launcher"), *pods("RR"), *pods("R", "board"))
    assert not running.applied(SecretMetadata)
    without = job("mpi", roles=roles)
    assert workload_of(without).rules.ssh_roles == ()
    assert not simulate(without).start().applied(SecretMetadata)


LAUNCHER_AS_HOST = {
    "unset: launcher in the host file": (None, False),
    "true: launcher in the host file": (True, False),
    "false: launcher not in the host file": (False, True),
}


@pytest.mark.parametrize(("launcher_as_host", "want"), LAUNCHER_AS_HOST.values(), ids=LAUNCHER_AS_HOST.keys())
def test_launcher_as_host(launcher_as_host: bool | None, want: bool) -> None:
    block = {} if launcher_as_host is None else {"launcherAsHost": launcher_as_host}
    obj = job("mpi", roles={"launcher": {}, "worker": {}}, framework={"mpi": block})
    initializer = inject(workload_of(obj), workload_of(obj).roles["launcher"], 0).initializer
    assert initializer is not None
    assert ("--include-self=false" in initializer.arguments) is want
    assert not messages(simulate(obj).reconcile().events, "UnknownField")


def test_mpich_connects_to_the_address_of_the_launcher() -> None:
    obj = job("mpi", roles={"launcher": {}, "worker": {}}, framework={"mpi": {"implementation": "mpich"}})
    assert env(obj, "launcher") == {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_IFACE": "eth0"}


KEYS_WITHOUT_USE = {
    "not an MPI job: reported": (job(framework={"mpi": {"sshKeys": True}}), ["spec.framework.mpi.sshKeys"]),
    "MPI job without a host file: not reported": (
        job("mpi", roles={"launcher": {}}, framework={"mpi": {"sshKeys": True}}),
        [],
    ),
}


@pytest.mark.parametrize(("obj", "want"), KEYS_WITHOUT_USE.values(), ids=KEYS_WITHOUT_USE.keys())
def test_unused_ssh_keys_are_reported(obj: AresJob, want: list[str]) -> None:
    reported = messages(simulate(obj).reconcile().events, "FieldIgnored")
    assert [text.partition(":")[0] for text in reported] == want


@CASES(
    "32. mpi sample (worker 1, launcher 1, hostNetwork): launcher shows Init:0/1 until worker is Running; "
    "then /etc/mpi/hostfile is …; launcher exit 0 -> Succeeded though worker runs; worker fails -> Failed"
)
def mpi() -> None:
    on_host = {"template": {"spec": {"hostNetwork": True, "containers": [{"name": "mpi", "image": "image"}]}}}
    obj = job("mpi", roles={"launcher": on_host, "worker": on_host})
    workload = workload_of(obj)
    waiting = inject(workload, workload.roles["launcher"], 0).initializer
    assert waiting is not None
    wanted = ("--roles", "worker", "--phase", "Running", "--write-mpi-hostfile-to", "/etc/mpi/hostfile")
    assert set(wanted) <= set(waiting.arguments)
    assert inject(workload, workload.roles["worker"], 0).initializer is None
    running = simulate(obj).start().reconcile(*pods("R", "launcher"), *pods("R"))
    assert running.phase == "Running"
    assert running.reconcile(*pods("S", "launcher"), *pods("R")).phase == "Succeeded"
    assert running.reconcile(*pods("R", "launcher"), *pods("F")).phase == "Failed"


BAGUA = job(
    "bagua",
    roles={"worker": {"replicas": 2}, "etcd": {}},
    framework={"bagua": {"enableElastic": True}},
    availablePorts=list(range(12355, 12361)),
)


@CASES(
    "33. bagua elastic sample (ports 12355–12360, worker 2): etcd ports 12355/12356; worker-0 ssh "
    "12357, available 12358; worker-1 ssh 12359, available 12360; MIN_SIZE = MAX_SIZE = 2"
)
def bagua_elastic() -> None:
    etcd, first, second = env(BAGUA, "etcd"), env(BAGUA, "worker", 0), env(BAGUA, "worker", 1)
    assert (etcd["ETCD_CLIENT_PORT"], etcd["ETCD_SERVER_PORT"]) == ("12355", "12356")
    assert (first["BAGUA_SSH_PORT"], first["BAGUA_AVAILABLE_PORTS"]) == ("12357", "12358")
    assert (second["BAGUA_SSH_PORT"], second["BAGUA_AVAILABLE_PORTS"]) == ("12359", "12360")
    assert {first["MIN_SIZE"], first["MAX_SIZE"], second["MIN_SIZE"]} == {"2"}
    assert first["ETCD_HOST"] == f"job-etcd-0.job-etcd.{DOMAIN}"


@CASES("34. Share of 5 ports over 2 replicas, index 1 -> third and fourth")
def shares_of_ports_are_of_one_size() -> None:
    assert share((1, 2, 3, 4, 5), 2, 1) == (3, 4)


def test_bagua_static() -> None:
    obj = job("bagua", roles={"master": {}, "worker": {}}, availablePorts=[7, 8, 9, 10])
    variables = env(obj, "worker")
    assert variables == {
        "BAGUA_SSH_PORT": "7",
        "MASTER_PORT": "8",
        "BAGUA_AVAILABLE_PORTS": "9,10",
        "MASTER_ADDR": f"job-master-0.job-master.{DOMAIN}",
        "WORLD_SIZE": "2",
        "RANK": "1",
        "BAGUA_NODE_DOMAIN_NAMES": f"job-master-0.job-master.{DOMAIN},job-worker-0.job-worker.{DOMAIN}",
        "SERVICE_DOMAIN_NAME": f"job-worker.{DOMAIN} job-master.{DOMAIN}",
    }


def dask_role(*ports: int, **more: object) -> dict[str, object]:
    return {"template": template("dask", ports=[{"containerPort": port} for port in ports]), **more}


@CASES(
    "35. dask scheduler, leadworker, worker 2, launcher: waits scheduler <- leadworker <- worker <- "
    "launcher; WORLD_SIZE 4; ranks 0,1,2,3; launcher Succeeded -> Succeeded; a user's own dependence on "
    "launcher is kept"
)
def dask() -> None:
    roles = {
        "scheduler": dask_role(8786, 8787),
        "leadworker": dask_role(9000),
        "worker": dask_role(replicas=2),
        "launcher": dask_role(9001),
    }
    obj = job("dask", roles=roles)
    waits = {
        name: [dependency.role for dependency in role.depends_on or ()]
        for name, role in workload_of(obj).roles.items()
    }
    assert waits == {
        "scheduler": [],
        "leadworker": ["scheduler"],
        "worker": ["leadworker"],
        "launcher": ["worker"],
    }
    environments = [env(obj, "leadworker"), env(obj, "worker"), env(obj, "worker", 1), env(obj, "launcher")]
    assert [variables["RANK"] for variables in environments] == ["0", "1", "2", "3"]
    assert {variables["WORLD_SIZE"] for variables in environments} == {"4"}
    assert [variables["MASTER_ADDR"] for variables in environments[:2]] == [
        "0.0.0.0",
        f"job-leadworker.{DOMAIN}",
    ]
    assert environments[3]["SCHEDULER"] == f"tcp://job-scheduler.{DOMAIN}:8786"
    own = {**roles, "launcher": dask_role(9001, dependence={"roleNames": ["scheduler"]})}
    assert [
        dependency.role
        for dependency in workload_of(job("dask", roles=own)).roles["launcher"].depends_on or ()
    ] == ["scheduler"]
    running_pods = (*pods("R", "scheduler"), *pods("R", "leadworker"), *pods("RR"))
    running = simulate(obj).start().reconcile(*running_pods, *pods("R", "launcher"))
    assert running.reconcile(*running_pods, *pods("S", "launcher")).phase == "Succeeded"


@CASES(
    "36. custom, ps 1 + worker 2 -> MODULE, INDEX, ps, worker, ROLE_PS, ROLE_WORKER with FQDN lists; "
    "one headless service each"
)
def custom() -> None:
    obj = job(roles={"ps": {}, "worker": {"replicas": 2}})
    ps = f"job-ps-0.job-ps.{DOMAIN}"
    workers = f"job-worker-0.job-worker.{DOMAIN},job-worker-1.job-worker.{DOMAIN}"
    want = {
        "MODULE": "worker",
        "INDEX": "1",
        "ps": ps,
        "ROLE_PS": ps,
        "worker": workers,
        "ROLE_WORKER": workers,
    }
    assert env(obj, "worker", 1) == want
    assert [service.name for service in simulate(obj).start().applied(Service)] == ["job-ps", "job-worker"]


def test_too_long_address_list_is_left_out() -> None:
    variables = env(job(roles={"ps": {}, "worker": {"replicas": 3000}}), "ps", 0)
    assert sorted(variables) == ["INDEX", "MODULE", "ROLE_PS", "ps"]


def test_service_has_the_ports_that_a_framework_adds() -> None:
    assert workload_of(job("tensorflow")).rules.service_ports == {"worker": (("tfjob-port", 2222),)}
    own = {"template": template("pytorch", ports=[{"name": "pytorch", "containerPort": 40000}])}
    assert workload_of(job("pytorch", roles={"master": own})).rules.service_ports == {
        "master": (("pytorch", 40000),)
    }
    assert workload_of(job("pytorch", roles={"master": {}})).rules.service_ports == {
        "master": (("pytorch", 23456),)
    }


def test_service_ports() -> None:
    ports = [{"containerPort": 9}, {"name": "web", "containerPort": 80}, {"containerPort": 9}]
    obj = job(roles={"a": {"template": template(ports=ports)}, "b": {}})
    assert workload_of(obj).rules.service_ports == {
        "a": (("port-9", 9), ("web", 80)),
        "b": (("port-80", 80),),
    }


@CASES(
    "38. InvalidDefinition job fixed by an edit -> runs without being recreated; conditions show Failed "
    "False, DefinitionChanged"
)
def an_invalid_job_is_cured_by_an_edit() -> None:
    refused = simulate(job(roles={"worker": {"replicas": 0}})).reconcile()
    still = refused.with_spec(roleSpecs={"worker": {"replicas": -1}}).reconcile()
    assert "invalid value -1" in still.condition("Failed")[2], "the other error is reported as well"
    cured = still.with_spec(roleSpecs={"worker": {"replicas": 1}}).reconcile()
    assert cured.condition("Failed")[:2] == ("False", "DefinitionChanged")
    assert (cured.phase, cured.status.start_time, cured.created) == ("Pending", None, [])
    assert messages(cured.events, "JobPhaseTransition") == ["Failed -> Pending"]
    begun = cured.reconcile()
    assert (begun.phase, begun.created) == ("Starting", ["worker-0"])
    running = begun.reconcile(*pods("R"))
    assert (running.phase, running.status.completion_time) == ("Running", None)
    assert running.reconcile(*pods("S")).phase == "Succeeded"


BROKEN = {
    "None: all kept": ("None", []),
    "All: all deleted": ("All", ["job-worker-0"]),
    "Running: running pods deleted": ("Running", ["job-worker-0"]),
    "unknown policy: all kept": ("Sometimes", []),
}


@pytest.mark.parametrize(("policy", "want"), BROKEN.values(), ids=BROKEN.keys())
def test_edit_that_makes_a_job_invalid_after_it_ran_fails_it_for_good(policy: str, want: list[str]) -> None:
    running = simulate(job()).start().reconcile(*pods("R"))
    edits = {"roleSpecs": {"worker": {"replicas": 0}}, "runPolicy": {"cleanPodPolicy": policy}}
    broken = running.with_spec(**edits).reconcile(*pods("R"))
    assert (broken.phase, broken.deleted) == ("Failed", want)
    assert broken.condition("Failed")[:2] == ("True", "InvalidDefinition")
    assert broken.status.completion_time is not None
    assert broken.with_spec(roleSpecs={"worker": {"replicas": 1}}).reconcile().phase == "Failed"


def test_edit_that_makes_a_job_invalid_before_it_ran_deletes_its_children() -> None:
    starting = simulate(job()).start().reconcile(*pods("P"))
    broken = starting.with_spec(roleSpecs={"worker": {"replicas": 0}}).reconcile(*pods("P"))
    assert (broken.phase, broken.deleted) == ("Failed", ["job-worker-0"])
    assert (broken.status.completion_time, broken.status.role_statuses) == (None, {})
    assert broken.with_spec(roleSpecs={"worker": {"replicas": 1}}).reconcile().phase == "Pending"


def test_overwritten_variables_and_policies_are_reported() -> None:
    written = template(env=[{"name": "INDEX", "value": "7"}, {"name": "MINE", "value": "x"}])
    written["spec"]["restartPolicy"] = "Always"  # type: ignore[index]
    first = simulate(job(roles={"worker": {"template": written}})).reconcile()
    path = "spec.roleSpecs.worker.template.spec"
    assert messages(first.events, "EnvOverwritten") == [
        f"{path}.containers[0].env: INDEX is set by the framework"
    ]
    assert messages(first.events, "RestartPolicyOverwritten") == [
        f"{path}.restartPolicy: Always becomes Never"
    ]


def test_event_about_an_unknown_field_suggests_the_closest_known_one() -> None:
    obj = job(roles={"worker": {"replica": 2, "template": {"spec": {"containers": [{"name": "a"}]}}}})
    assert messages(simulate(obj).reconcile().events, "UnknownField") == [
        'spec.roleSpecs.worker.replica: unknown field, kept and ignored; did you mean "replicas"?'
    ]


def test_unknown_and_ignored_fields_are_reported_once() -> None:
    obj = job(
        roles={"worker": {"colour": "red", "template": {"spec": {"x": 1, "containers": [{"name": "a"}]}}}},
        availablePorts=[1],
        framework={"mpi": {}, "bagua": {"minReplicas": 1, "speed": 3}},
        runPolicy={"schedulingPolicy": {"queue": "q"}},
    )
    first = simulate(obj).reconcile()
    unknown = [text.partition(":")[0] for text in messages(first.events, "UnknownField")]
    assert sorted(unknown) == ["spec.framework.bagua.speed", "spec.roleSpecs.worker.colour"]
    ignored = [text.partition(":")[0] for text in messages(first.events, "FieldIgnored")]
    assert ignored == [
        "spec.availablePorts",
        "spec.framework.mpi",
        "spec.framework.bagua.minReplicas",
        "spec.runPolicy.schedulingPolicy.queue",
    ]
    assert first.phase == "Pending"
    assert not messages(first.reconcile().events, "UnknownField")


@pytest.mark.parametrize("play", CASES.table.values(), ids=CASES.table.keys())
def test_case(play: Callable[[], None]) -> None:
    play()

"""Translates TrainingJobs (`kai.alibabacloud.com/v1alpha1`) to workloads, and back to their status.

A launcher and its workers are two roles. The launcher decides about the job; it is created when all workers
run. Workers never decide: a lost one is replaced under a new name, or the job continues without it. Numbers
in brackets are sections of et-operator's specification.
"""

from collections.abc import Mapping
from typing import Final

from argosy.dialects.base import StatusInput
from argosy.dialects.checkpoints import checkpoint_problems
from argosy.dialects.et import names, status
from argosy.dialects.et.attach import ATTACH_CHECKS, KUBEXEC, SSH, drain_check, kubexec_script
from argosy.dialects.et.files import (
    DEEPSPEED_FOLDER,
    DEEPSPEED_HOSTFILE,
    DISCOVER_HOSTS,
    HOSTFILE,
    HOSTS_FOLDER,
    discover_hosts,
)
from argosy.dialects.et.files import KUBEXEC as KUBEXEC_FILE
from argosy.dialects.et.settings import EtSettings
from argosy.dialects.et.spec import max_replicas, min_replicas, slots_per_worker
from argosy.dialects.et.validation import load_job, replicas_problem
from argosy.dialects.templates import containers
from argosy.kinds.trainingjob import (
    APP_LABEL,
    GROUP,
    GROUP_LABEL,
    INDEX_LABEL,
    JOB_LABEL,
    LAUNCHER,
    ROLE_LABEL,
    SCALE_OUT_LABEL,
    SSH_SECRET_ANNOTATION,
    SUSPEND_ANNOTATION,
    WORKER,
    TrainingJob,
    TrainingJobSpec,
    TrainingJobStatus,
)
from argosy.workload.checkpoint_policy import checkpoint_policy
from argosy.workload.child_rules import AccountRule, GeneratedSecret, LauncherAccount
from argosy.workload.children import SSH_KEYS_NAMED_RSA
from argosy.workload.host_list import HostFile, HostList
from argosy.workload.model import (
    DEFAULT_CLUSTER_DOMAIN,
    CleanupPolicy,
    Dependency,
    Elastic,
    Gang,
    Json,
    Limits,
    Problems,
    ReplacementPolicy,
    RestartPolicy,
    RestartScope,
    Role,
    RolePolicy,
    Rules,
    Ttl,
    Workload,
)
from argosy.workload.naming import Naming
from argosy.workload.semantics import Semantics

SEMANTICS: Final = Semantics(
    roles_path="spec.etReplicaSpecs",
    role_label=ROLE_LABEL,
    index_label=INDEX_LABEL,
    request_label=SCALE_OUT_LABEL,
    replaced_exit_codes=frozenset({None, *range(128, 256)}),
    keep_children=True,
    keep_pods_without_restarts=True,
)

_SERVICE_PORTS = (("ssh-port", 22), ("kubeai-service-port", 9009))


class TrainingJobDialect:
    kind = TrainingJob

    def __init__(
        self, settings: EtSettings = EtSettings(), cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
    ) -> None:
        self._settings = settings
        self._cluster_domain = cluster_domain

    def to_workload(self, obj: TrainingJob) -> Workload | Problems:
        spec = load_job(obj, started=obj.status.start_time is not None)
        if isinstance(spec, Problems):
            return spec
        workload = self._workload(obj, spec)
        problems = checkpoint_problems(workload)
        return Problems(tuple(problems)) if problems else workload

    def to_status(self, obj: TrainingJob, view: StatusInput) -> TrainingJobStatus:
        return status.to_status(obj, view)

    def _workload(self, obj: TrainingJob, spec: TrainingJobSpec) -> Workload:
        meta, settings, checkpoint = obj.metadata, self._settings, spec.checkpoint
        return Workload(
            kind=obj.resource.kind,
            api_version=obj.resource.api_version,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            framework="",
            roles={LAUNCHER: _launcher(spec), WORKER: _worker(obj, spec, settings)},
            options={"attachMode": spec.launcher_attach_mode, "sshPath": spec.ssh_auth_mount_path},
            rules=_rules(obj, spec, settings),
            limits=_limits(spec, settings),
            gang=_gang(spec),
            cleanup=CleanupPolicy(spec.clean_pod_policy or "None"),
            suspended=spec.suspend or meta.annotations.get(SUSPEND_ANNOTATION) == "true",
            deleting=meta.deletion_timestamp is not None,
            cluster_domain=self._cluster_domain,
            naming=_naming(),
            labels={GROUP_LABEL: GROUP, JOB_LABEL: meta.name},
            annotations=meta.annotations,
            semantics=SEMANTICS,
            checkpoint=checkpoint_policy(checkpoint, meta.namespace, meta.name, meta.uid)
            if checkpoint
            else None,
        )


def _naming() -> Naming:
    return Naming(role_hosts={LAUNCHER: "{job}-launcher"}, ssh_keys="{job}")


def _launcher(spec: TrainingJobSpec) -> Role:
    """Return the role whose end is the job's [3.5].

    In a gang its pod is created with the workers and waits, since the gang would otherwise never be complete.
    """
    launcher = spec.et_replica_specs.launcher
    in_gang = spec.scheduling_policy is not None
    return Role(
        name=LAUNCHER,
        replicas=1,
        template=launcher.template,
        restart=RestartPolicy.ON_FAILURE if spec.restart_policy == "OnFailure" else RestartPolicy.NEVER,
        policy=RolePolicy(),
        depends_on=(Dependency(WORKER, holds_creation=not in_gang),),
        replacement=ReplacementPolicy(
            scope=RestartScope.JOB,
            refill_deleted=launcher.restart_policy == "Always",
            count_disruptions=True,
        ),
        keep_ended_pods=True,
    )


def _worker(obj: TrainingJob, spec: TrainingJobSpec, settings: EtSettings) -> Role:
    """Return the role of the workers, of which lost ones are replaced under new names [3.6]."""
    worker = spec.et_replica_specs.worker
    ignored = replicas_problem(spec) is not None
    replicas = len(obj.status.target_workers) if ignored else worker.replicas
    return Role(
        name=WORKER,
        replicas=max(replicas, 1),
        template=worker.template,
        restart=RestartPolicy(worker.restart_policy),
        policy=RolePolicy(node_down_as_failed=True, ends=False),
        elastic=Elastic(
            min_replicas(spec),
            max_replicas(spec),
            starts_with_min=False,
            restart_below_min=spec.restart_policy == "OnFailure",
        ),
        replacement=ReplacementPolicy(
            scope=RestartScope.POD,
            deleted=worker.restart_policy == "Always",
            unknown=worker.restart_policy == "Always",
            next_index=True,
            budget=settings.worker_budget,
        ),
        slots=slots_per_worker(spec),
    )


def _rules(obj: TrainingJob, spec: TrainingJobSpec, settings: EtSettings) -> Rules:
    mode = spec.launcher_attach_mode
    generates_keys = (
        mode == SSH and settings.create_ssh_secret and SSH_SECRET_ANNOTATION not in obj.metadata.annotations
    )
    secret = GeneratedSecret(names.ssh_secret_name(obj.metadata.name), SSH_KEYS_NAMED_RSA, (LAUNCHER, WORKER))
    return Rules(
        succeeded_when=((LAUNCHER,),),
        failed_when=((LAUNCHER,),),
        pod_services=(WORKER,),
        service_ports={WORKER: _SERVICE_PORTS},
        exec_from=(LAUNCHER,),
        exec_into=(WORKER,),
        account=_account(obj.metadata.name),
        secrets=(secret,) if generates_keys else (),
        host_list=HostList(
            role=WORKER,
            launcher=LAUNCHER,
            container=_first_container(spec.et_replica_specs.worker.template),
            launcher_container=_first_container(spec.et_replica_specs.launcher.template),
            launcher_folder=HOSTS_FOLDER,
            attach_check=ATTACH_CHECKS[mode],
            drain_check=drain_check(mode),
            min_listed=min_replicas(spec),
            max_members=max_replicas(spec),
            files=_files(_first_container(spec.et_replica_specs.worker.template)),
            config_map="{job}-config",
        ),
    )


def _files(container: str) -> tuple[HostFile, ...]:
    """Return the files of the ConfigMap, and where the launcher has current copies of them [3.3, 3.4]."""
    hosts, deepspeed = f"{HOSTS_FOLDER}/{HOSTFILE}", f"{DEEPSPEED_FOLDER}/{HOSTFILE}"
    discover = f"{HOSTS_FOLDER}/{DISCOVER_HOSTS}"
    return (
        HostFile(HOSTFILE, line="{host}:{slots}\n", paths=(hosts,)),
        HostFile(DEEPSPEED_HOSTFILE, line="{host} slots={slots}\n", paths=(deepspeed,)),
        HostFile(DISCOVER_HOSTS, text=discover_hosts(), paths=(discover,), mode=0o755, config_map_mode=0o555),
        HostFile(KUBEXEC_FILE, text=kubexec_script(container), config_map_mode=0o555),
    )


def _account(job: str) -> LauncherAccount:
    """Return what the launcher may do: reach its workers, and read the host list [3.3]."""
    rules = (
        AccountRule("pods", ("get", "list", "watch")),
        AccountRule("pods/exec", ("get", "create")),
        AccountRule("configmaps", ("get",), (names.config_map_name(job),)),
    )
    return LauncherAccount(rules, {APP_LABEL: job})


def _limits(spec: TrainingJobSpec, settings: EtSettings) -> Limits:
    ttl = None if spec.ttl_seconds_after_finished is None else float(spec.ttl_seconds_after_finished)
    deadline = None if spec.active_deadline_seconds is None else float(spec.active_deadline_seconds)
    return Limits(
        restarts=spec.backoff_limit,
        active_deadline=deadline,
        below_min_timeout=settings.below_min_timeout,
        ttl=Ttl(ttl, ttl),
    )


def _gang(spec: TrainingJobSpec) -> Gang | None:
    policy = spec.scheduling_policy
    if policy is None:
        return None
    everything = spec.et_replica_specs.worker.replicas + 1
    timeout = policy.schedule_timeout_seconds
    return Gang(
        policy.min_available or everything,
        policy.queue,
        policy.priority_class,
        float(timeout) if timeout else None,
        policy.min_resources or {},
    )


def _first_container(template: Json) -> str:
    listed = containers(template)
    first: Mapping[str, object] = listed[0] if listed else {}
    return str(first.get("name", ""))


def uses_ssh(workload: Workload) -> bool:
    return workload.options.get("attachMode") != KUBEXEC

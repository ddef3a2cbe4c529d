"""Renders pods: the role's template with everything added that the framework and the operator need.

Pure. The template is never changed in place and is copied only along the paths that change, since one
template serves thousands of pods. What all pods of a role have in common is rendered once, as a
`RoleTemplate`; from pod to pod only names, labels and environment variables differ.

What the user wrote wins over what the framework sets, except for variables that it declares `forced`. Files
are passed as annotations through a downward-API volume: they exist before the first container starts, and
need neither another object nor a shell in the image.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from msgspec import Struct

from argosy.frameworks.base import SSH_FOLDER, Initializer, Injection
from argosy.kinds import labels
from argosy.plan.children import owner_reference
from argosy.reconcile.render_context import RenderContext, helper_container, helper_volumes
from argosy.reconcile.sshkeys import KEY_FILES
from argosy.workload.children import job_owner, request_labels, role_labels, ssh_secret_name
from argosy.workload.elastic import waits_to_join
from argosy.workload.gang_schedulers.base import Membership
from argosy.workload.model import Dependency, RestartPolicy, Role, Workload

Json = dict[str, object]

_FILES_VOLUME = "argosy-files"
_SSH_VOLUME = "argosy-ssh"
_INDEX_VARIABLE = "ARGOSY_INDEX"


class PodIdentity(Struct, frozen=True):
    """Identifies a pod: its replica, the attempt of the job, and its replacements in that attempt."""

    name: str
    index: int
    attempt: int = 1
    replacement: int = 0
    added_by: str = ""
    """Name of the object that asked for it, if one did."""


class RoleTemplate(Struct, frozen=True):
    """What all pods of a role have in common."""

    workload: Workload
    role: str
    metadata: Json
    spec: Json
    """Without containers, which follow."""
    helpers: tuple[Json, ...]
    init_containers: tuple["Container", ...]
    containers: tuple["Container", ...]
    with_identity: bool = True

    def render_pod(self, pod: PodIdentity, env: Mapping[str, str]) -> Json:
        """Return the body to POST; `env` are the variables that the framework sets in this pod."""
        identity = _identity(self.workload, self.role, pod) if self.with_identity else {}
        all_env = {**identity, **env}
        spec = {
            **self.spec,
            "hostname": self.workload.hostname(self.role, pod.index),
            "containers": [
                container.with_env(all_env if container.framework else identity)
                for container in self.containers
            ],
        }
        if self.helpers or self.init_containers:
            user_containers = (
                container.with_env(all_env if container.framework else identity)
                for container in self.init_containers
            )
            spec["initContainers"] = [*self.helpers, *user_containers]
        metadata = {
            "name": pod.name,
            **({"generateName": f"{spec['hostname']}-"} if pod.name != spec["hostname"] else {}),
            **self.metadata,
            "labels": {**_object(self.metadata["labels"]), **replica_labels(self.workload, pod)},
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def render_role(
    site: RenderContext,
    workload: Workload,
    role: Role,
    injection: Injection,
    *,
    token: str = "",
    membership: Membership | None = None,
    service_account: str = "",
) -> RoleTemplate:
    """Render what pods of a role share if the framework injects the same but for values of variables.

    `membership` is what the gang scheduler needs in pods, `service_account` the account for remote exec.
    """
    spec = dict(_object(role.template.get("spec")))
    files = _Files(injection.files)
    if role.name in workload.rules.services or workload.semantics.role_label:
        spec["subdomain"] = workload.service(role.name)
    spec["restartPolicy"] = _RESTART_POLICIES[role.container_restart_policy]
    uses_ssh = role.name in workload.rules.ssh_roles
    main_only = [_SSH_MOUNT] if uses_ssh else []
    init_containers, containers = _containers(spec, injection, files, main_only)
    helpers = (*map(dict, injection.init_containers), *_helpers(spec, site, workload, role, injection, token))
    ssh_volumes = [_ssh_volume(workload)] if uses_ssh else []
    _add_volumes(spec, [*files.volumes, *ssh_volumes, *map(dict, injection.volumes)])
    if injection.dns_searches:
        dns = dict(_object(spec.get("dnsConfig")))
        dns["searches"] = [*_list(dns.get("searches")), *injection.dns_searches]
        spec["dnsConfig"] = dns
    if service_account and (injection.force_service_account or "serviceAccountName" not in spec):
        spec["serviceAccountName"] = service_account
        spec["automountServiceAccountToken"] = True
    if membership:
        _join(spec, workload, membership)
    metadata = _metadata(workload, role, membership or Membership(), files.annotations)
    return RoleTemplate(
        workload, role.name, metadata, spec, helpers, init_containers, containers, injection.identity
    )


def _join(spec: Json, workload: Workload, membership: Membership) -> None:
    """Make a pod a member of its gang; a scheduler or a priority class that the user named is kept."""
    if membership.scheduler_name:
        spec.setdefault("schedulerName", membership.scheduler_name)
    if workload.gang and workload.gang.priority_class:
        spec.setdefault("priorityClassName", workload.gang.priority_class)
    spec.update(membership.fields)


def replica_labels(workload: Workload, pod: PodIdentity) -> dict[str, str]:
    """Return the labels of one pod, in addition to those of its role."""
    index_label = workload.semantics.index_label
    api_labels = {index_label: str(pod.index)} if index_label else {}
    return {
        labels.INDEX: str(pod.index),
        labels.ATTEMPT: str(pod.attempt),
        labels.REPLACEMENT: str(pod.replacement),
        **api_labels,
        **request_labels(workload, pod.added_by),
    }


def dependencies_of(role: Role, injection: Injection) -> tuple[Dependency, ...]:
    """Return what a pod waits for before its containers start, for the user and for the framework."""
    wants = (want for want in role.depends_on or () if not want.holds_creation)
    return tuple(dict.fromkeys((*wants, *injection.depends_on)))


_RESTART_POLICIES: Mapping[RestartPolicy, str] = {
    RestartPolicy.NEVER: "Never",
    RestartPolicy.ON_FAILURE: "OnFailure",
    RestartPolicy.ALWAYS: "Always",
    RestartPolicy.EXIT_CODE: "Never",
}


class _Files:
    """Files of an injection, as annotations, volumes (one per folder) and mounts."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.annotations: dict[str, str] = {}
        folders: dict[str, list[Json]] = {}
        for number, (path, content) in enumerate(sorted(files.items())):
            annotation = f"{labels.DOMAIN}/file-{number}"
            self.annotations[annotation] = content
            whole = PurePosixPath(path)
            item: Json = {
                "path": whole.name,
                "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"},
            }
            folders.setdefault(str(whole.parent), []).append(item)
        names = [f"{_FILES_VOLUME}-{number}" for number in range(len(folders))]
        self.volumes: list[Json] = [
            {"name": name, "downwardAPI": {"items": items}}
            for name, items in zip(names, folders.values(), strict=True)
        ]
        self.mounts: list[Json] = [
            {"name": name, "mountPath": folder, "readOnly": True}
            for name, folder in zip(names, folders, strict=True)
        ]


_SSH_MOUNT: Json = {"name": _SSH_VOLUME, "mountPath": SSH_FOLDER, "subPath": "ssh", "readOnly": True}


def _ssh_volume(workload: Workload) -> Json:
    """Return a volume with the keys in a folder of it: the volume's root is writable by all users, and sshd
    accepts no keys from such a folder."""
    items = [{"key": name, "path": f"ssh/{name}"} for name in KEY_FILES]
    return {
        "name": _SSH_VOLUME,
        "secret": {"secretName": ssh_secret_name(workload), "defaultMode": 0o600, "items": items},
    }


class Container(Struct, frozen=True):
    """A container of the template, complete but for its environment variables."""

    written: Json
    user_env: tuple[Mapping[str, object], ...]
    """Variables from the template. They come last, so that they may refer to ours as $(NAME)."""
    env_names: frozenset[object]
    fields: Mapping[str, str]
    """Variables whose values are fields of the pod."""
    framework: bool = True
    """True if the framework's variables are for this container."""

    def with_env(self, variables: Mapping[str, str]) -> Json:
        added = [
            {"name": name, "value": value} for name, value in variables.items() if name not in self.env_names
        ]
        fields = {name: path for name, path in self.fields.items() if name not in self.env_names}
        env = [*_from_fields(fields), *added, *self.user_env]
        return {**self.written, "env": env} if env else dict(self.written)


def _metadata(workload: Workload, role: Role, membership: Membership, annotations: Mapping[str, str]) -> Json:
    written = _object(role.template.get("metadata"))
    propagated = workload.propagated
    user_labels = {
        key: value
        for key, value in _object(written.get("labels")).items()
        if key not in propagated.annotations
    }
    our_labels = {**propagated.labels, **membership.labels, **role_labels(workload, role.name)}
    metadata: Json = {
        "namespace": workload.namespace,
        "labels": {**user_labels, **our_labels},
        "ownerReferences": [owner_reference(job_owner(workload))],
    }
    user_annotations = {**_object(written.get("annotations")), **propagated.annotations}
    if all_annotations := {**user_annotations, **membership.annotations, **annotations}:
        metadata["annotations"] = all_annotations
    return metadata


def _identity(workload: Workload, role: str, pod: PodIdentity) -> dict[str, str]:
    return {
        "ARGOSY_JOB": workload.name,
        "ARGOSY_NAMESPACE": workload.namespace,
        "ARGOSY_ROLE": role,
        _INDEX_VARIABLE: str(pod.index),
        "ARGOSY_ATTEMPT": str(pod.attempt),
    }


def _containers(
    spec: Json, injection: Injection, files: _Files, main_only: list[Json]
) -> tuple[tuple[Container, ...], tuple[Container, ...]]:
    """Return the template's init containers and containers, with mounts, command and ports."""
    mounts = list(files.mounts)
    if injection.remote_exec:
        mount = {"name": injection.remote_volume, "mountPath": injection.remote_folder, "readOnly": True}
        mounts.append(mount)
    if injection.initializer:
        mounts += _shared_mounts(injection.initializer)
    mounts += map(dict, injection.mounts)
    init_containers, containers = (
        [_with_mounts(_object(container), part_mounts) for container in _list(spec.get(part))]
        for part, part_mounts in (("initContainers", mounts), ("containers", [*mounts, *main_only]))
    )
    names = [container.get("name") for container in containers]
    port_index = names.index(injection.ports_container) if injection.ports_container in names else 0
    if containers:
        containers[0] = _with_mounts(containers[0], map(dict, injection.first_container_mounts))
        containers[0] = _with_command(containers[0], injection)
        containers[port_index] = _with_ports(containers[port_index], injection)
    return _ready(init_containers, injection), _ready(containers, injection)


def _ready(containers: Iterable[Json], injection: Injection) -> tuple[Container, ...]:
    ready: list[Container] = []
    for container in containers:
        is_target = not injection.env_container or container.get("name") == injection.env_container
        forced = injection.override_env if is_target else ()
        written = [_object(variable) for variable in _list(container.get("env"))]
        user_env = tuple(variable for variable in written if variable.get("name") not in forced)
        names = frozenset(variable.get("name") for variable in user_env)
        fields = injection.field_env if is_target else {}
        ready.append(Container(container, user_env, names, fields, is_target))
    return tuple(ready)


def _from_fields(fields: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _shared_mounts(initializer: Initializer) -> list[Json]:
    return [{"name": volume, "mountPath": path} for path, volume in initializer.folders.items()]


def _with_mounts(container: Mapping[str, object], mounts: Iterable[Json]) -> Json:
    written = _list(container.get("volumeMounts"))
    used_paths = {_object(mount).get("mountPath") for mount in written}
    added = [mount for mount in mounts if mount["mountPath"] not in used_paths]
    return {**container, "volumeMounts": [*written, *added]} if added else dict(container)


def _with_command(container: Json, injection: Injection) -> Json:
    if injection.default_command and not container.get("command") and not container.get("args"):
        return {**container, "command": list(injection.default_command)}
    return container


def _with_ports(container: Json, injection: Injection) -> Json:
    ports = [_object(port) for port in _list(container.get("ports"))]
    used = {port.get("name") for port in ports} | {port.get("containerPort") for port in ports}
    added = [
        {"name": port.name, "containerPort": port.number}
        for port in injection.ports
        if port.name not in used and port.number not in used
    ]
    return {**container, "ports": [*ports, *added]} if added else container


def _helpers(
    spec: Json, site: RenderContext, workload: Workload, role: Role, injection: Injection, token: str
) -> tuple[Json, ...]:
    """Return the init containers, before the user's own, that do all that the pod needs of the helper."""
    steps: list[list[str]] = []
    mounts: list[Json] = []
    if injection.remote_exec:
        kubectl = ["--kubectl", site.helper.kubectl] if site.helper.kubectl else []
        steps.append(["remote-exec", "--to", injection.remote_folder, *kubectl])
        mounts.append({"name": injection.remote_volume, "mountPath": injection.remote_folder})
        _add_volumes(spec, [{"name": injection.remote_volume, "emptyDir": {}}])
    initializers: list[Json] = []
    if injection.initializer:
        initializers.append(_initializer(spec, site, workload, injection.initializer, token))
    elif waits := dependencies_of(role, injection):
        steps.append(["wait", *(f"{wait.role}={wait.phase}" for wait in waits)])
    joins = waits_to_join(workload, role)
    if joins:
        steps.append(["join", role.name, f"$({_INDEX_VARIABLE})"])
    if not steps:
        return tuple(initializers)
    arguments = [word for number, step in enumerate(steps) for word in (["then"] if number else []) + step]
    _add_volumes(spec, [] if initializers else helper_volumes(site))
    environment = endpoint_environment(site, workload, token)
    container = helper_container(site, labels.HELPER_CONTAINER, arguments, environment, mounts)
    if joins:
        index = {_INDEX_VARIABLE: f"metadata.labels['{labels.INDEX}']"}
        container["env"] = [*_from_fields(index), *_list(container["env"])]
    return (*initializers, container)


def endpoint_environment(site: RenderContext, workload: Workload, token: str) -> dict[str, str]:
    """Return the variables by which the helper finds its job at the operator."""
    return {
        "ARGOSY_URL": site.url,
        "ARGOSY_TOKEN": token,
        "ARGOSY_NAMESPACE": workload.namespace,
        "ARGOSY_JOB": workload.name,
        "ARGOSY_CA": site.ca_pem,
    }


def _initializer(
    spec: Json, site: RenderContext, workload: Workload, wanted: Initializer, token: str
) -> Json:
    """Return the init container of the API's own. Where the user mounts a volume, it fills that one."""
    first = _list(spec.get("containers"))[:1]
    user_mounts = _list(_object(first[0] if first else None).get("volumeMounts"))
    by_path = {_object(mount).get("mountPath"): _object(mount) for mount in user_mounts}
    mounts: list[Json] = [dict(by_path.get(mount["mountPath"], mount)) for mount in _shared_mounts(wanted)]
    mounts += [{"name": name, "mountPath": path} for name, path in wanted.host_folders.items()]
    empty: list[Json] = [
        {"name": volume, "emptyDir": {}} for path, volume in wanted.folders.items() if path not in by_path
    ]
    host: list[Json] = [
        {"name": name, "hostPath": {"path": path}} for name, path in wanted.host_folders.items()
    ]
    _add_volumes(spec, [*empty, *host, *helper_volumes(site)])
    environment = {**endpoint_environment(site, workload, token), **wanted.env}
    environment["ARGOSY_URL"] = wanted.url or site.url
    environment["ARGOSY_CA"] = site.ca_pem if wanted.tls else ""
    container = helper_container(site, wanted.name, wanted.arguments, environment, mounts)
    container["imagePullPolicy"] = "IfNotPresent"
    container["image"] = wanted.image or container["image"]
    if wanted.command:
        container["command"] = list(wanted.command)
    container["env"] = [*_from_fields(wanted.field_env), *_list(container["env"])]
    return container


def _add_volumes(spec: Json, volumes: Iterable[Json]) -> None:
    if added := list(volumes):
        spec["volumes"] = [*_list(spec.get("volumes")), *added]


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []

"""The pod of one place: the role's template with what the framework asked for put in.

Pure. The template is never changed in place and is copied only along the paths that change, since one
template serves thousands of pods. What all pods of a role have in common is put together once, in a `Mould`;
from pod to pod only names, labels and variables differ.

What the user wrote wins over what the framework would like, except for variables that it declares `forced`.
Files travel as annotations through a downward-API volume: they are there before the first container starts
and need neither a further object nor a shell in the image.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from msgspec import Struct

from argosy.frameworks.base import REMOTE_AGENT, SSH_FOLDER, Initializer, Injection
from argosy.kinds import labels
from argosy.reconcile.initializers import CACHE_URI
from argosy.reconcile.render_context import RenderContext, helper_container, helper_volumes
from argosy.reconcile.sshkeys import KEY_FILES
from argosy.workload.children import keys
from argosy.workload.gang_schedulers.base import Membership
from argosy.workload.model import Dependency, RestartPolicy, Role, Workload

Json = dict[str, object]

REMOTE_FOLDER = str(PurePosixPath(REMOTE_AGENT).parent)
_REMOTE_VOLUME = "argosy-remote"
_FILES_VOLUME = "argosy-files"
_SSH_VOLUME = "argosy-ssh"


class PodIdentity(Struct, frozen=True):
    """Which pod: the `index`-th of its role, in which attempt of the job, replaced how often in it."""

    name: str
    index: int
    attempt: int = 1
    replacement: int = 0


class RoleTemplate(Struct, frozen=True):
    """A role's pod but for its place: `pod` puts that in."""

    workload: Workload
    role: str
    metadata: Json
    spec: Json
    """Its containers stand below."""
    helpers: tuple[Json, ...]
    init_containers: tuple["_Container", ...]
    containers: tuple["_Container", ...]
    identity: bool = True

    def pod(self, place: PodIdentity, env: Mapping[str, str]) -> Json:
        """The body to POST; `env` is what the framework tells the pod in this place."""
        identity = _identity(self.workload, self.role, place) if self.identity else {}
        told = {**identity, **env}
        spec = {
            **self.spec,
            "hostname": self.workload.hostname(self.role, place.index),
            "containers": [one.with_env(told if one.framework else identity) for one in self.containers],
        }
        if self.helpers or self.init_containers:
            users = (one.with_env(told if one.framework else identity) for one in self.init_containers)
            spec["initContainers"] = [*self.helpers, *users]
        common = self.metadata["labels"]
        metadata = {
            "name": place.name,
            **({"generateName": f"{spec['hostname']}-"} if place.name != spec["hostname"] else {}),
            **self.metadata,
            "labels": {**_object(common), **place_labels(self.workload, place)},
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
    """What pods of a role share, for which the framework asks alike except for the values of variables.

    `membership` is what its gang's back end asks for, `service_account` that of remote exec.
    """
    spec = dict(_object(role.template.get("spec")))
    files = _Files(injection.files)
    if role.name in workload.rules.services or workload.role_label:
        spec["subdomain"] = workload.service(role.name)
    spec["restartPolicy"] = _RESTART_POLICIES[role.container_restart_policy]
    reached = role.name in workload.rules.ssh_roles
    init_containers, containers = _containers(spec, injection, files, [_SSH_MOUNT] if reached else [])
    helpers = _helpers(spec, site, workload, role, injection, token)
    _add_volumes(spec, [*files.volumes, *([_ssh_volume(workload)] if reached else [])])
    if injection.searches:
        dns = dict(_object(spec.get("dnsConfig")))
        dns["searches"] = [*_list(dns.get("searches")), *injection.searches]
        spec["dnsConfig"] = dns
    if service_account and "serviceAccountName" not in spec:
        spec["serviceAccountName"] = service_account
        spec["automountServiceAccountToken"] = True
    if membership:
        _join(spec, workload, membership)
    metadata = _metadata(workload, role, membership or Membership(), files.annotations)
    return RoleTemplate(
        workload, role.name, metadata, spec, helpers, init_containers, containers, injection.identity
    )


def _join(spec: Json, workload: Workload, membership: Membership) -> None:
    """Makes a pod one of its gang; a scheduler or a priority that the user named stay."""
    if membership.scheduler:
        spec.setdefault("schedulerName", membership.scheduler)
    if workload.gang and workload.gang.priority_class:
        spec.setdefault("priorityClassName", workload.gang.priority_class)
    spec.update(membership.fields)


def owner_reference(workload: Workload) -> Json:
    return {
        "apiVersion": workload.api_version,
        "kind": workload.kind,
        "name": workload.name,
        "uid": workload.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def job_labels(workload: Workload) -> dict[str, str]:
    """What everything made for a job carries."""
    return {labels.MANAGED_BY: labels.MANAGER, labels.JOB: workload.name, **workload.labels}


def role_labels(workload: Workload, role: str) -> dict[str, str]:
    """What pods and the service of a role carry."""
    theirs = {workload.role_label: role} if workload.role_label else {}
    return {**job_labels(workload), labels.ROLE: role, **theirs}


def place_labels(workload: Workload, place: PodIdentity) -> dict[str, str]:
    """What a pod carries beside what all pods of its role do."""
    theirs = {workload.index_label: str(place.index)} if workload.index_label else {}
    return {
        labels.INDEX: str(place.index),
        labels.ATTEMPT: str(place.attempt),
        labels.REPLACEMENT: str(place.replacement),
        **theirs,
    }


def role_selector(workload: Workload, role: str) -> dict[str, str]:
    """By which a role's service finds its pods: a dialect that has labels of its own is known by these."""
    if workload.role_label:
        return {**workload.labels, workload.role_label: role}
    return role_labels(workload, role)


def waits_of(role: Role, injection: Injection) -> tuple[Dependency, ...]:
    """What a pod waits for before its own containers start: the user's dependencies and the framework's."""
    return tuple(dict.fromkeys((*(role.depends_on or ()), *injection.waits)))


_RESTART_POLICIES: Mapping[RestartPolicy, str] = {
    RestartPolicy.NEVER: "Never",
    RestartPolicy.ON_FAILURE: "OnFailure",
    RestartPolicy.ALWAYS: "Always",
    RestartPolicy.EXIT_CODE: "Never",
}


class _Files:
    """Files of an injection as annotations, volumes (one per folder) and mounts."""

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
    """The keys in a folder inside of the volume: the volume's own can be written by all, and sshd takes no
    keys from such a one."""
    items = [{"key": name, "path": f"ssh/{name}"} for name in KEY_FILES]
    return {
        "name": _SSH_VOLUME,
        "secret": {"secretName": keys(workload), "defaultMode": 0o600, "items": items},
    }


class _Container(Struct, frozen=True):
    """A container of the template, ready for its variables."""

    written: Json
    user_env: tuple[Mapping[str, object], ...]
    """The user's variables. Ours come first, so that these may refer to them as $(NAME)."""
    env_names: frozenset[object]
    fields: Mapping[str, str]
    """Variables whose values are fields of the pod."""
    framework: bool = True
    """Whether the framework's variables are for this container."""

    def with_env(self, variables: Mapping[str, str]) -> Json:
        added = [
            {"name": name, "value": value} for name, value in variables.items() if name not in self.env_names
        ]
        fields = {name: path for name, path in self.fields.items() if name not in self.env_names}
        env = [*_from_fields(fields), *added, *self.user_env]
        return {**self.written, "env": env} if env else dict(self.written)


def _metadata(workload: Workload, role: Role, membership: Membership, annotations: Mapping[str, str]) -> Json:
    written = _object(role.template.get("metadata"))
    handed = workload.propagated
    own = {
        key: value for key, value in _object(written.get("labels")).items() if key not in handed.annotations
    }
    ours = {**handed.labels, **membership.labels, **role_labels(workload, role.name)}
    metadata: Json = {
        "namespace": workload.namespace,
        "labels": {**own, **ours},
        "ownerReferences": [owner_reference(workload)],
    }
    theirs = {**_object(written.get("annotations")), **handed.annotations}
    if together := {**theirs, **membership.annotations, **annotations}:
        metadata["annotations"] = together
    return metadata


def _identity(workload: Workload, role: str, place: PodIdentity) -> dict[str, str]:
    return {
        "ARGOSY_JOB": workload.name,
        "ARGOSY_NAMESPACE": workload.namespace,
        "ARGOSY_ROLE": role,
        "ARGOSY_INDEX": str(place.index),
        "ARGOSY_ATTEMPT": str(place.attempt),
    }


def _containers(
    spec: Json, injection: Injection, files: _Files, main_only: list[Json]
) -> tuple[tuple[_Container, ...], tuple[_Container, ...]]:
    """The template's init containers and containers, with mounts, command and ports."""
    mounts = list(files.mounts)
    if injection.remote_exec:
        mounts.append({"name": _REMOTE_VOLUME, "mountPath": REMOTE_FOLDER, "readOnly": True})
    if injection.initializer:
        mounts += _shared(injection.initializer)
    init_containers, containers = (
        [_with_mounts(_object(one), given) for one in _list(spec.get(part))]
        for part, given in (("initContainers", mounts), ("containers", [*mounts, *main_only]))
    )
    names = [one.get("name") for one in containers]
    entry = names.index(injection.ports_in) if injection.ports_in in names else 0
    if containers:
        containers[0] = _with_command(containers[0], injection)
        containers[entry] = _with_ports(containers[entry], injection)
    return _ready(init_containers, injection), _ready(containers, injection)


def _ready(containers: Iterable[Json], injection: Injection) -> tuple[_Container, ...]:
    ready: list[_Container] = []
    for container in containers:
        told = not injection.only_in or container.get("name") == injection.only_in
        forced = injection.forced if told else ()
        written = [_object(one) for one in _list(container.get("env"))]
        kept = tuple(one for one in written if one.get("name") not in forced)
        names = frozenset(one.get("name") for one in kept)
        ready.append(_Container(container, kept, names, injection.fields if told else {}, told))
    return tuple(ready)


def _from_fields(fields: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _shared(initializer: Initializer) -> list[Json]:
    return [{"name": volume, "mountPath": path} for path, volume in initializer.folders.items()]


def _with_mounts(container: Mapping[str, object], mounts: Iterable[Json]) -> Json:
    written = _list(container.get("volumeMounts"))
    taken = {_object(one).get("mountPath") for one in written}
    added = [mount for mount in mounts if mount["mountPath"] not in taken]
    return {**container, "volumeMounts": [*written, *added]} if added else dict(container)


def _with_command(container: Json, injection: Injection) -> Json:
    if injection.default_command and not container.get("command") and not container.get("args"):
        return {**container, "command": list(injection.default_command)}
    return container


def _with_ports(container: Json, injection: Injection) -> Json:
    ports = [_object(one) for one in _list(container.get("ports"))]
    taken = {one.get("name") for one in ports} | {one.get("containerPort") for one in ports}
    added = [
        {"name": port.name, "containerPort": port.number}
        for port in injection.ports
        if port.name not in taken and port.number not in taken
    ]
    return {**container, "ports": [*ports, *added]} if added else container


def _helpers(
    spec: Json, site: RenderContext, workload: Workload, role: Role, injection: Injection, token: str
) -> tuple[Json, ...]:
    """One init container, before the user's own, does everything the pod needs from the helper."""
    steps: list[list[str]] = []
    mounts: list[Json] = []
    if injection.remote_exec:
        kubectl = ["--kubectl", site.helper.kubectl] if site.helper.kubectl else []
        steps.append(["remote-exec", "--to", REMOTE_FOLDER, *kubectl])
        mounts.append({"name": _REMOTE_VOLUME, "mountPath": REMOTE_FOLDER})
        _add_volumes(spec, [{"name": _REMOTE_VOLUME, "emptyDir": {}}])
    if injection.initializer:
        return (_initializer(spec, site, workload, injection.initializer, token),)
    if waits := waits_of(role, injection):
        steps.append(["wait", *(f"{wait.role}={wait.phase}" for wait in waits)])
    if not steps:
        return ()
    arguments = [word for number, step in enumerate(steps) for word in (["then"] if number else []) + step]
    _add_volumes(spec, helper_volumes(site))
    environment = _endpoint(site, workload, token)
    return (helper_container(site, labels.HELPER_CONTAINER, arguments, environment, mounts),)


def _endpoint(site: RenderContext, workload: Workload, token: str) -> dict[str, str]:
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
    """The helper under another name. The folders that it fills are the user's own where he has some there."""
    first = _list(spec.get("containers"))[:1]
    written = [_object(one) for one in _list(_object(first[0] if first else None).get("volumeMounts"))]
    own = {one.get("mountPath"): one for one in written}
    mounts = [own.get(mount["mountPath"], mount) for mount in _shared(wanted)]
    made = [volume for path, volume in wanted.folders.items() if path not in own]
    empty: list[Json] = [{"name": name, "emptyDir": {}} for name in made]
    chosen, asked = site.initializers, site.observer_address(bool(spec.get("hostNetwork")))
    folders: list[Json] = [{"name": name, "hostPath": {"path": at}} for name, at in chosen.volumes.items()]
    _add_volumes(spec, [*empty, *folders, *helper_volumes(site)])
    told = {"ARGOSY_URL": asked.uri, "ARGOSY_CA": site.ca_pem if asked.tls else ""}
    environment = {**_endpoint(site, workload, token), **told, **wanted.env, **chosen.env}
    seen: list[Json] = [{"name": name, "mountPath": at} for name, at in chosen.volumes.items()]
    given = [*(dict(one) for one in mounts), *seen]
    container = helper_container(site, wanted.name, wanted.arguments, environment, given)
    container["imagePullPolicy"] = "IfNotPresent"
    container["image"] = chosen.image or container["image"]
    if chosen.command:
        container["command"] = chosen.command.vector({**wanted.words, CACHE_URI: asked.uri})
    container["env"] = [*_from_fields(wanted.fields), *_list(container["env"])]
    return container


def _add_volumes(spec: Json, volumes: Iterable[Json]) -> None:
    if added := list(volumes):
        spec["volumes"] = [*_list(spec.get("volumes")), *added]


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []

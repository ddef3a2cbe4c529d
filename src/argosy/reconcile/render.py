"""The pod of one place: the role's template with what the framework asked for put in.

Pure. The template is never changed in place and is copied only along the paths that change, since one
template serves thousands of pods. What the user wrote wins over what the framework would like, except for
variables that it declares `forced`. Files travel as annotations through a downward-API volume: they are
there before the first container starts and need neither a further object nor a shell in the image.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from msgspec import Struct

from argosy.frameworks.base import REMOTE_AGENT, Injection
from argosy.kinds import labels
from argosy.reconcile.site import Site, helper_container, helper_volumes
from argosy.workload.model import Dependency, Restart, Role, Workload

Json = dict[str, object]

INIT_CONTAINER = "argosy"
REMOTE_FOLDER = str(PurePosixPath(REMOTE_AGENT).parent)
GANG_SCHEDULER = "volcano"
_REMOTE_VOLUME = "argosy-remote"
_FILES_VOLUME = "argosy-files"


class Place(Struct, frozen=True):
    """Which pod: the `index`-th of its role, in which attempt of the job, replaced how often in it."""

    name: str
    index: int
    attempt: int = 1
    replacement: int = 0


def render_pod(
    site: Site,
    workload: Workload,
    role: Role,
    place: Place,
    injection: Injection,
    *,
    token: str = "",
    group: str = "",
    service_account: str = "",
) -> Json:
    """The body to POST. `group` is the PodGroup of a gang, `service_account` that of remote start."""
    spec = dict(_object(role.template.get("spec")))
    files = _Files(injection.files)
    spec["hostname"] = workload.hostname(role.name, place.index)
    if role.name in workload.rules.services:
        spec["subdomain"] = workload.service(role.name)
    spec["restartPolicy"] = _RESTART_POLICIES[role.in_place]
    _add_containers(spec, workload, role, place, injection, files)
    _add_helper(spec, site, workload, role, injection, token)
    _add_volumes(spec, [*files.volumes])
    if injection.searches:
        dns = dict(_object(spec.get("dnsConfig")))
        dns["searches"] = [*_list(dns.get("searches")), *injection.searches]
        spec["dnsConfig"] = dns
    if service_account and "serviceAccountName" not in spec:
        spec["serviceAccountName"] = service_account
        spec["automountServiceAccountToken"] = True
    if group and workload.gang:
        spec.setdefault("schedulerName", GANG_SCHEDULER)
        if workload.gang.priority_class:
            spec.setdefault("priorityClassName", workload.gang.priority_class)
    metadata = _metadata(workload, role, place, group, files.annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


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
    return {labels.MANAGED_BY: labels.MANAGER, labels.JOB: workload.name}


def waits_of(role: Role, injection: Injection) -> tuple[Dependency, ...]:
    """What a pod waits for before its own containers start: the user's dependencies and the framework's."""
    return tuple(dict.fromkeys((*(role.depends_on or ()), *injection.waits)))


_RESTART_POLICIES: Mapping[Restart, str] = {
    Restart.NEVER: "Never",
    Restart.ON_FAILURE: "OnFailure",
    Restart.ALWAYS: "Always",
    Restart.EXIT_CODE: "Never",
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


def _metadata(
    workload: Workload, role: Role, place: Place, group: str, annotations: Mapping[str, str]
) -> Json:
    written = _object(role.template.get("metadata"))
    gang = {labels.POD_GROUP_ANNOTATION: group, labels.TASK_SPEC_ANNOTATION: role.name} if group else {}
    metadata: Json = {
        "name": place.name,
        "namespace": workload.namespace,
        "labels": {
            **_object(written.get("labels")),
            **job_labels(workload),
            labels.ROLE: role.name,
            labels.INDEX: str(place.index),
            labels.ATTEMPT: str(place.attempt),
            labels.REPLACEMENT: str(place.replacement),
        },
        "ownerReferences": [owner_reference(workload)],
    }
    if together := {**_object(written.get("annotations")), **gang, **annotations}:
        metadata["annotations"] = together
    return metadata


def _add_containers(
    spec: Json, workload: Workload, role: Role, place: Place, injection: Injection, files: _Files
) -> None:
    identity = {
        "ARGOSY_JOB": workload.name,
        "ARGOSY_NAMESPACE": workload.namespace,
        "ARGOSY_ROLE": role.name,
        "ARGOSY_INDEX": str(place.index),
        "ARGOSY_ATTEMPT": str(place.attempt),
    }
    env = {**identity, **injection.env}
    mounts = list(files.mounts)
    if injection.remote_start:
        mounts.append({"name": _REMOTE_VOLUME, "mountPath": REMOTE_FOLDER, "readOnly": True})
    for part in ("initContainers", "containers"):
        if part in spec:
            spec[part] = [
                _with_mounts(_with_env(_object(container), env, injection.forced), mounts)
                for container in _list(spec[part])
            ]
    containers = _list(spec.get("containers"))
    if containers:
        spec["containers"] = [_with_entry(_object(containers[0]), injection), *containers[1:]]


def _with_env(container: Mapping[str, object], env: Mapping[str, str], forced: frozenset[str]) -> Json:
    """Ours come first, so that the user's own variables may refer to them as $(NAME)."""
    written = [_object(one) for one in _list(container.get("env"))]
    kept = [one for one in written if one.get("name") not in forced]
    taken = {one.get("name") for one in kept}
    added = [{"name": name, "value": value} for name, value in env.items() if name not in taken]
    return {**container, "env": [*added, *kept]}


def _with_mounts(container: Mapping[str, object], mounts: Iterable[Json]) -> Json:
    written = _list(container.get("volumeMounts"))
    taken = {_object(one).get("mountPath") for one in written}
    added = [mount for mount in mounts if mount["mountPath"] not in taken]
    return {**container, "volumeMounts": [*written, *added]} if added else dict(container)


def _with_entry(container: Mapping[str, object], injection: Injection) -> Json:
    changed = dict(container)
    if injection.default_command and not container.get("command") and not container.get("args"):
        changed["command"] = list(injection.default_command)
    ports = [_object(one) for one in _list(container.get("ports"))]
    taken = {one.get("name") for one in ports} | {one.get("containerPort") for one in ports}
    added = [
        {"name": port.name, "containerPort": port.number}
        for port in injection.ports
        if port.name not in taken and port.number not in taken
    ]
    if added:
        changed["ports"] = [*ports, *added]
    return changed


def _add_helper(
    spec: Json, site: Site, workload: Workload, role: Role, injection: Injection, token: str
) -> None:
    """One init container, before the user's own, does everything the pod needs from the helper."""
    steps: list[list[str]] = []
    mounts: list[Json] = []
    if injection.remote_start:
        kubectl = ["--kubectl", site.helper.kubectl] if site.helper.kubectl else []
        steps.append(["remote-start", "--to", REMOTE_FOLDER, *kubectl])
        mounts.append({"name": _REMOTE_VOLUME, "mountPath": REMOTE_FOLDER})
        _add_volumes(spec, [{"name": _REMOTE_VOLUME, "emptyDir": {}}])
    if waits := waits_of(role, injection):
        steps.append(["wait", *(f"{wait.role}={wait.phase}" for wait in waits)])
    if not steps:
        return
    arguments = [word for number, step in enumerate(steps) for word in (["then"] if number else []) + step]
    environment = {
        "ARGOSY_URL": site.url,
        "ARGOSY_TOKEN": token,
        "ARGOSY_NAMESPACE": workload.namespace,
        "ARGOSY_JOB": workload.name,
        "ARGOSY_CA": site.authority,
    }
    helper = helper_container(site, INIT_CONTAINER, arguments, environment, mounts)
    spec["initContainers"] = [helper, *_list(spec.get("initContainers"))]
    _add_volumes(spec, helper_volumes(site))


def _add_volumes(spec: Json, volumes: Iterable[Json]) -> None:
    if added := list(volumes):
        spec["volumes"] = [*_list(spec.get("volumes")), *added]


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []

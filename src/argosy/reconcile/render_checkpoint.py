"""Adds to the pods of a job with checkpoints what saves and resumes them.

An init container makes a link to the newest checkpoint that verifies, and copies `argosy_sdk` to where the
program can import it. A sidecar (an init container that always restarts) delivers orders to save a checkpoint
and acknowledges those that are complete. Programs see a store that pods can mount as a folder; each job has
one of its own. For other stores the folder belongs to the pod, the sidecar publishes what is saved there, and
the init container restores it; only these two have the credentials.

Pods that are independent copies of one program have a folder each, also in an object store, since two of them
may save the same step at once. They resume from the newest checkpoint of any copy.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from argosy.kinds import labels
from argosy.reconcile.render import Container, Json, RoleTemplate, endpoint_environment
from argosy.reconcile.render_context import (
    PUBLISHER_CPU,
    PUBLISHER_MEMORY,
    RenderContext,
    helper_container,
    helper_volumes,
)
from argosy.reconcile.render_hosts import (
    POD_FIELDS,
    as_first_user,
    field_variables,
    objects,
    with_mounts,
    with_volumes,
)
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.model import Workload
from argosy.workload.plan import CreatePod

STORE_VOLUME = "argosy-checkpoints"
RUN_VOLUME = "argosy-run"
CREDENTIALS_VOLUME = "argosy-store-credentials"
CREDENTIALS_FOLDER = "/run/argosy-store-credentials"
STORE_FOLDER = "/argosy/checkpoints"
COPIES_FOLDER = "/argosy/copies"
"""The folder with those of all copies, in pods that are independent copies of one program."""
RUN_FOLDER = "/run/argosy"
ORDERS_FILE = f"{RUN_FOLDER}/orders/orders.json"
STEP_FILE = f"{RUN_FOLDER}/step"
RESUME_LINK = f"{RUN_FOLDER}/resume/checkpoint"
SDK_FOLDER = f"{RUN_FOLDER}/sdk"
USER_PYTHON_PATH = "ARGOSY_USER_PYTHONPATH"
"""The variable that keeps the template's PYTHONPATH, which ours refers to."""

_REPLICA_FIELDS: Mapping[str, str] = {
    "ARGOSY_INDEX": f"metadata.labels['{labels.INDEX}']",
    "ARGOSY_ATTEMPT": f"metadata.labels['{labels.ATTEMPT}']",
    "ARGOSY_REPLACEMENT": f"metadata.labels['{labels.REPLACEMENT}']",
}
"""Which pod of which replica it is, for the sidecar."""


def checkpoint_variables(workload: Workload, pod: CreatePod) -> dict[str, str]:
    """Return the variables of the program in a pod."""
    policy = workload.checkpoint
    if policy is None or not policy.is_kept_by_program:
        return {}
    is_first = pod.attempt == 1 and pod.replacement == 0
    variables = {
        "ARGOSY_JOB_UID": workload.uid,
        "ARGOSY_ATTEMPT": str(pod.attempt),
        "ARGOSY_INCARNATION": str(pod.replacement),
        "ARGOSY_CHECKPOINT_DIR": STORE_FOLDER,
        "ARGOSY_CHECKPOINT_URI": policy.uri,
        "ARGOSY_ORDERS": ORDERS_FILE,
        "ARGOSY_STEP_FILE": STEP_FILE,
        "ARGOSY_RESUME": "0" if is_first else "1",
        "ARGOSY_RESUME_FROM": RESUME_LINK,
        "PYTHONPATH": SDK_FOLDER,
    }
    if not policy.is_shared:
        variables["ARGOSY_CHECKPOINT_SHARED"] = "0"
    if policy.interval is not None:
        variables["ARGOSY_CHECKPOINT_INTERVAL"] = f"{policy.interval:g}"
    return variables


def with_checkpoint(template: RoleTemplate, site: RenderContext, token: str) -> RoleTemplate:
    """Return the template of a role whose pods save and resume checkpoints."""
    policy = template.workload.checkpoint
    assert policy is not None
    mounts: list[Json] = [*_store_mounts(policy), {"name": RUN_VOLUME, "mountPath": RUN_FOLDER}]
    volumes: list[Json] = [_store_volume(policy), {"name": RUN_VOLUME, "emptyDir": {}}, *helper_volumes(site)]
    own_mounts = mounts
    if policy.credentials:
        volumes.append({"name": CREDENTIALS_VOLUME, "secret": {"secretName": policy.credentials}})
        secret: Json = {"name": CREDENTIALS_VOLUME, "mountPath": CREDENTIALS_FOLDER, "readOnly": True}
        own_mounts = [*mounts, secret]
    helpers = [
        as_first_user(container, template, site)
        for container in (
            _init_container(site, policy, own_mounts),
            _sidecar(site, template, policy, own_mounts, token),
        )
    ]
    return replace(
        template,
        spec=with_volumes(template.spec, volumes),
        helpers=(*template.helpers, *helpers),
        containers=tuple(_with_checkpoint(container, mounts) for container in template.containers),
    )


def with_checkpoint_in_spec(
    spec: Json, workload: Workload, pod: CreatePod, site: RenderContext, token: str
) -> Json:
    """Return the spec of a pod that another controller creates, with all that saves and resumes checkpoints.

    Variables that the containers have already are kept.
    """
    parts = ("containers", "initContainers")
    containers, init_containers = (tuple(map(_container, objects(spec.get(part)))) for part in parts)
    other_fields = {name: value for name, value in spec.items() if name not in parts}
    template = RoleTemplate(workload, pod.role, {}, other_fields, (), init_containers, containers)
    template = with_checkpoint(template, site, token)
    variables = checkpoint_variables(workload, pod)
    own = [container.with_env({}) for container in template.init_containers]
    return {
        **template.spec,
        "initContainers": [*template.helpers, *own],
        "containers": [container.with_env(variables) for container in template.containers],
    }


def _container(written: Mapping[str, object]) -> Container:
    variables = tuple(objects(written.get("env")))
    return Container(dict(written), variables, frozenset(item.get("name") for item in variables), {})


def _with_checkpoint(container: Container, mounts: Sequence[Json]) -> Container:
    """Return a container of the user with the folders, and with our part of PYTHONPATH before its own."""
    variables: list[Mapping[str, object]] = []
    for variable in container.user_env:
        if variable.get("name") == "PYTHONPATH":
            variables.append({**variable, "name": USER_PYTHON_PATH})
            variable = {"name": "PYTHONPATH", "value": f"{SDK_FOLDER}:$({USER_PYTHON_PATH})"}
        variables.append(variable)
    used = {mount.get("mountPath") for mount in objects(container.written.get("volumeMounts"))}
    added = [mount for mount in mounts if mount["mountPath"] not in used]
    return replace(container, written=with_mounts(container.written, added), user_env=tuple(variables))


def _init_container(site: RenderContext, policy: CheckpointPolicy, mounts: Sequence[Json]) -> Json:
    name, arguments = labels.CHECKPOINT_INIT_CONTAINER, ["resume", "--sdk", SDK_FOLDER]
    if policy.is_shared:
        copies = ["--copies", COPIES_FOLDER] if policy.copy else []
        arguments += ["--folder", STORE_FOLDER, *copies, "--link", RESUME_LINK]
        return helper_container(site, name, arguments, {}, mounts)
    copies = ["--copies", policy.uri] if policy.copy else []
    optional = ["--optional"] if policy.starts_without_store else []
    arguments += [*copies, *optional, "--link", RESUME_LINK]
    return _publisher(helper_container(site, name, arguments, _store_variables(policy), mounts), site)


def _store_variables(policy: CheckpointPolicy) -> dict[str, str]:
    """Return the variables by which a container finds the folder of its pod in an object store."""
    folder = {"ARGOSY_STORE_CREDENTIALS": CREDENTIALS_FOLDER} if policy.credentials else {}
    return {"ARGOSY_CHECKPOINT_URI": policy.own_uri, "ARGOSY_CHECKPOINT_SHARED": "0", **folder}


def _publisher(container: Json, site: RenderContext) -> Json:
    """Return a helper's container that runs the program for object stores, with the resources it needs."""
    command = container["command"]
    assert isinstance(command, list)
    resources = {
        bound: {"cpu": PUBLISHER_CPU[bound], "memory": PUBLISHER_MEMORY[bound]}
        for bound in ("requests", "limits")
    }
    arguments = command[len(site.helper.command) :]
    return {**container, "command": [*site.helper.store_command, *arguments], "resources": resources}


def _sidecar(
    site: RenderContext, template: RoleTemplate, policy: CheckpointPolicy, mounts: Sequence[Json], token: str
) -> Json:
    environment = {
        **endpoint_environment(site, template.workload, token),
        "ARGOSY_ROLE": template.role,
        "ARGOSY_CHECKPOINT_DIR": STORE_FOLDER,
        "ARGOSY_KEEP_LAST": str(policy.keep_last),
        "ARGOSY_ORDERS": ORDERS_FILE,
        "ARGOSY_STEP_FILE": STEP_FILE,
        "ARGOSY_RESUME_FROM": RESUME_LINK,
    }
    if policy.copy:
        environment["ARGOSY_INDEX"] = "0"  # each copy is a role of one pod
    if template.spec.get("shareProcessNamespace") is True:
        environment["ARGOSY_SHARED_PROCESSES"] = "1"
    if not policy.is_shared:
        environment |= _store_variables(policy)
    container = helper_container(site, labels.CHECKPOINT_CONTAINER, ("orders",), environment, mounts)
    if not policy.is_shared:
        container = _publisher(container, site)
    fields = POD_FIELDS if policy.copy else {**POD_FIELDS, **_REPLICA_FIELDS}
    container["env"] = [*field_variables(fields), *objects(container["env"])]
    return {**container, "restartPolicy": "Always"}


def _store_mounts(policy: CheckpointPolicy) -> list[Json]:
    mount: Json = {"name": STORE_VOLUME, "mountPath": STORE_FOLDER}
    if not policy.is_shared:
        return [mount]
    path = _location(policy)[1]
    if not policy.copy:
        return [{**mount, "subPath": path}]
    copies: Json = {"name": STORE_VOLUME, "mountPath": COPIES_FOLDER, "subPath": path, "readOnly": True}
    return [{**mount, "subPath": f"{path}/{policy.copy}"}, copies]


def _store_volume(policy: CheckpointPolicy) -> Json:
    if not policy.is_shared:
        return {"name": STORE_VOLUME, "emptyDir": {}}
    root, _ = _location(policy)
    if policy.scheme == "pvc":
        return {"name": STORE_VOLUME, "persistentVolumeClaim": {"claimName": root}}
    return {"name": STORE_VOLUME, "hostPath": {"path": root, "type": "DirectoryOrCreate"}}


def _location(policy: CheckpointPolicy) -> tuple[str, str]:
    """Return the claim, or the folder of the node, and the path of the job's folder in it."""
    location = policy.uri.partition("://")[2]
    if policy.scheme == "pvc":
        claim, _, path = location.partition("/")
        return claim, path.strip("/")
    root, namespace, name = location.rsplit("/", 2)
    return root or "/", f"{namespace}/{name}"

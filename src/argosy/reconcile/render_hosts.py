"""Adds to a launcher's pod what keeps the files of its host list current.

An init container writes the files before the launcher starts, and a sidecar (an init container that always
restarts) replaces them with each change. Both share the folders of these files with the first container.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from argosy.frameworks.base import HostFolders
from argosy.kinds import labels
from argosy.reconcile.render import Json, RoleTemplate, endpoint_environment
from argosy.reconcile.render_context import RenderContext, helper_container, helper_volumes
from argosy.workload.host_files import config_map_name
from argosy.workload.model import Workload

INIT_SECONDS = 600
"""How long the init container waits for the operator."""

POD_FIELDS = {"ARGOSY_POD_NAME": "metadata.name", "ARGOSY_POD_UID": "metadata.uid"}
"""Variables by which the sidecar names its pod when it acknowledges a host list."""


def with_host_files(
    template: RoleTemplate, site: RenderContext, wanted: HostFolders, token: str
) -> RoleTemplate:
    """Return the template of a launcher with its host files."""
    first, *others = template.containers
    mounted = {mount.get("mountPath"): mount for mount in objects(first.written.get("volumeMounts"))}
    folders: list[Json] = [
        _without_read_only(mounted.get(path, {"name": volume, "mountPath": path}))
        for path, volume in wanted.folders.items()
    ]
    empty: list[Json] = [
        {"name": volume, "emptyDir": {}} for path, volume in wanted.folders.items() if path not in mounted
    ]
    config = _Config(template.workload, wanted)
    added = [mount for mount in (*folders, *config.mounts) if mount["mountPath"] not in mounted]
    spec = {**template.spec, "volumes": [*objects(template.spec.get("volumes")), *empty, *config.volumes]}
    writer = _Writer(template, site, token, folders)
    containers = (writer.init_container(wanted, config.mounts), writer.sidecar())
    return replace(
        template,
        spec=with_volumes(spec, helper_volumes(site)),
        helpers=(*template.helpers, *containers),
        containers=(replace(first, written=with_mounts(first.written, added)), *others),
    )


class _Config:
    """The ConfigMap of the host list as a volume, if the launcher wants it."""

    def __init__(self, workload: Workload, wanted: HostFolders) -> None:
        self.volumes: list[Json] = []
        self.mounts: list[Json] = []
        rule = workload.rules.host_list
        if rule is None or not wanted.config_folder:
            return
        items = [{"key": file.key, "path": file.key, "mode": file.config_map_mode} for file in rule.files]
        source: Json = {"name": config_map_name(workload), "items": items}
        self.volumes.append({"name": wanted.config_volume, "configMap": source})
        self.mounts.append({"name": wanted.config_volume, "mountPath": wanted.config_folder})


class _Writer(Struct, frozen=True):
    """Renders the containers that write the files."""

    template: RoleTemplate
    site: RenderContext
    token: str
    folders: Sequence[Json]

    def init_container(self, wanted: HostFolders, config_mounts: Sequence[Json]) -> Json:
        arguments = ("hosts", "--once", "--deadline", str(INIT_SECONDS))
        container = self._container(wanted.init_container, arguments)
        if wanted.init_image:
            container["image"] = wanted.init_image
        if wanted.init_command:
            container["command"] = list(wanted.init_command)
            container["env"] = []  # it does not ask the operator, and may be anybody's image
            container["volumeMounts"] = [*objects(container["volumeMounts"]), *config_mounts]
        if wanted.init_resources:
            container["resources"] = dict(wanted.init_resources)
        return container

    def sidecar(self) -> Json:
        container = self._container(labels.HOSTS_CONTAINER, ("hosts",))
        container["env"] = [*field_variables(POD_FIELDS), *objects(container["env"])]
        return {**container, "restartPolicy": "Always"}

    def _container(self, name: str, arguments: Sequence[str]) -> Json:
        environment = endpoint_environment(self.site, self.template.workload, self.token)
        container = helper_container(self.site, name, arguments, environment, self.folders)
        return as_first_user(container, self.template, self.site)


def as_first_user(container: Json, template: RoleTemplate, site: RenderContext) -> Json:
    """Return a helper's container that runs as the user of the first container, unless that is root or not
    known: a volume of the user's own may be writable for this user only."""
    pod = _object(template.spec.get("securityContext"))
    user = {**pod, **_object(template.containers[0].written.get("securityContext"))}.get("runAsUser")
    if not isinstance(user, int) or user <= 0 or site.helper.user is None:
        return container
    return {**container, "securityContext": {**_object(container["securityContext"]), "runAsUser": user}}


def with_volumes(spec: Json, volumes: Sequence[Json]) -> Json:
    """Return the spec with those of the volumes that it does not have."""
    existing = objects(spec.get("volumes"))
    names = {volume.get("name") for volume in existing}
    return {**spec, "volumes": [*existing, *(volume for volume in volumes if volume["name"] not in names)]}


def field_variables(fields: Mapping[str, str]) -> list[Json]:
    """Return variables whose values are fields of the pod."""
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def with_mounts(container: Json, added: Sequence[Json]) -> Json:
    return {**container, "volumeMounts": [*objects(container.get("volumeMounts")), *added]}


def _without_read_only(mount: Mapping[str, object]) -> Json:
    return {name: value for name, value in mount.items() if name != "readOnly"}


def objects(value: object) -> list[Mapping[str, object]]:
    return [_object(item) for item in value] if isinstance(value, list) else []


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}

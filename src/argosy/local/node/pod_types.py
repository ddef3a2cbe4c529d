"""Pods and the objects they refer to, with all fields that are needed to run them.

These structs have more fields than those of `argosy.kinds.kubernetes`, which keep the operator's caches
small, and of the scheduler, which reads what a pod requests but not how it runs. They are still partial:
never write one back.
"""

from datetime import datetime
from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import Json, ObjectMeta
from argosy.kinds.node_matching import ContainerPort, Requirements
from argosy.kinds.resource import Resource


class KeyRef(Struct):
    key: str
    name: str = ""
    optional: bool = False


class FieldRef(Struct, rename="camel"):
    field_path: str


class ResourceFieldRef(Struct, rename="camel"):
    resource: str
    container_name: str = ""
    divisor: str | int = "0"


class EnvSource(Struct, rename="camel"):
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(Struct, rename="camel"):
    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class NameRef(Struct):
    name: str = ""
    optional: bool = False


class EnvFrom(Struct, rename="camel"):
    prefix: str = ""
    config_map_ref: NameRef | None = None
    secret_ref: NameRef | None = None


class Capabilities(Struct):
    add: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)


class SecurityContext(Struct, rename="camel"):
    run_as_user: int | None = None
    run_as_group: int | None = None
    privileged: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    run_as_non_root: bool | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)


class Sysctl(Struct):
    name: str
    value: str


class PodSecurityContext(Struct, rename="camel"):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: list[int] = field(default_factory=list)
    sysctls: list[Sysctl] = field(default_factory=list)


class ExecAction(Struct):
    command: list[str] = field(default_factory=list)


class Header(Struct):
    name: str
    value: str = ""


class HttpGet(Struct, rename="camel"):
    port: int | str
    host: str = ""
    path: str = "/"
    scheme: str = "HTTP"
    http_headers: list[Header] = field(default_factory=list)


class TcpSocket(Struct):
    port: int | str
    host: str = ""


class Sleep(Struct):
    seconds: float = 0


class Handler(Struct, rename="camel"):
    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    sleep: Sleep | None = None


class Probe(Struct, rename="camel"):
    exec: ExecAction | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: float | None = None


class Lifecycle(Struct, rename="camel"):
    post_start: Handler | None = None
    pre_stop: Handler | None = None
    stop_signal: str = ""


class VolumeMount(Struct, rename="camel"):
    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str = ""


class Container(Struct, rename="camel"):
    name: str
    image: str = ""
    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    working_dir: str = ""
    env: list[EnvVar] = field(default_factory=list)
    env_from: list[EnvFrom] = field(default_factory=list)
    ports: list[ContainerPort] = field(default_factory=list)
    resources: Requirements = field(default_factory=Requirements)
    volume_mounts: list[VolumeMount] = field(default_factory=list)
    volume_devices: list[Json] = field(default_factory=list)
    security_context: SecurityContext = field(default_factory=SecurityContext)
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    restart_policy: str = ""
    tty: bool = False
    stdin: bool = False
    stdin_once: bool = False
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"


class KeyToPath(Struct):
    key: str
    path: str
    mode: int | None = None


class DownwardItem(Struct, rename="camel"):
    path: str
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: int | None = None


class TokenProjection(Struct, rename="camel"):
    path: str
    audience: str = ""
    expiration_seconds: int = 3600


class KeyProjection(Struct):
    """The source ConfigMap or Secret of a projected volume."""

    name: str = ""
    items: list[KeyToPath] = field(default_factory=list)
    optional: bool = False


class DownwardProjection(Struct):
    items: list[DownwardItem] = field(default_factory=list)


class ProjectionSource(Struct, rename="camel"):
    config_map: KeyProjection | None = None
    secret: KeyProjection | None = None
    downward_api: DownwardProjection | None = field(default=None, name="downwardAPI")
    service_account_token: TokenProjection | None = None
    cluster_trust_bundle: Json | None = None
    pod_certificate: Json | None = None


class Projected(Struct, rename="camel"):
    sources: list[ProjectionSource] = field(default_factory=list)
    default_mode: int = 0o644


class ConfigMapVolume(Struct, rename="camel"):
    name: str = ""
    items: list[KeyToPath] = field(default_factory=list)
    default_mode: int = 0o644
    optional: bool = False


class SecretVolume(Struct, rename="camel"):
    secret_name: str = ""
    items: list[KeyToPath] = field(default_factory=list)
    default_mode: int = 0o644
    optional: bool = False


class DownwardVolume(Struct, rename="camel"):
    items: list[DownwardItem] = field(default_factory=list)
    default_mode: int = 0o644


class EmptyDir(Struct, rename="camel"):
    medium: str = ""
    size_limit: str | int | None = None


class HostPath(Struct):
    path: str
    type: str = ""


class ClaimVolume(Struct, rename="camel"):
    claim_name: str
    read_only: bool = False


class Volume(Struct, rename="camel"):
    name: str
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    projected: Projected | None = None
    downward_api: DownwardVolume | None = field(default=None, name="downwardAPI")
    persistent_volume_claim: ClaimVolume | None = None
    # Common types that are not supported; they are listed for the error message.
    csi: Json | None = None
    ephemeral: Json | None = None
    image: Json | None = None
    iscsi: Json | None = None
    nfs: Json | None = None

    @property
    def unsupported_type(self) -> str:
        """Return the type of an unsupported volume as manifests name it; empty if it is not known."""
        fields = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        sources = (shown for name, shown in fields if name != "name" and getattr(self, name) is not None)
        return next(sources, "")


class HostAlias(Struct):
    ip: str
    hostnames: list[str] = field(default_factory=list)


class DnsOption(Struct):
    name: str
    value: str | None = None


class DnsConfig(Struct):
    nameservers: list[str] = field(default_factory=list)
    searches: list[str] = field(default_factory=list)
    options: list[DnsOption] = field(default_factory=list)


class PodSpec(Struct, rename="camel"):
    node_name: str = ""
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    restart_policy: str = "Always"
    termination_grace_period_seconds: float = 30
    active_deadline_seconds: float | None = None
    service_account_name: str = "default"
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    host_pid: bool = field(default=False, name="hostPID")
    host_ipc: bool = field(default=False, name="hostIPC")
    share_process_namespace: bool = False
    host_aliases: list[HostAlias] = field(default_factory=list)
    dns_policy: str = "ClusterFirst"
    dns_config: DnsConfig = field(default_factory=DnsConfig)
    enable_service_links: bool = True
    image_pull_secrets: list[NameRef] = field(default_factory=list)
    security_context: PodSecurityContext = field(default_factory=PodSecurityContext)


class PodStatus(Struct, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    pod_ip: str = field(default="", name="podIP")
    start_time: datetime | None = None
    conditions: list[Json] = field(default_factory=list)
    container_statuses: list[Json] = field(default_factory=list)


class Pod(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMeta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def every_container(self) -> list[Container]:
        return [*self.spec.init_containers, *self.spec.containers]

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


class ConfigMap(Struct, rename="camel"):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    metadata: ObjectMeta
    data: dict[str, str] = field(default_factory=dict)
    binary_data: dict[str, bytes] = field(default_factory=dict)

    def content(self) -> dict[str, bytes]:
        return {key: text.encode() for key, text in self.data.items()} | self.binary_data


class Secret(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")

    metadata: ObjectMeta
    data: dict[str, bytes] = field(default_factory=dict)

    def content(self) -> dict[str, bytes]:
        return self.data

"""The run spec of a pod: everything that a shim needs to run it, as JSON in the pod's folder.

Written once, before the pod starts, and never changed: a shim needs neither agent nor API server, and a
restarted agent can read what is running. TypedDicts, because both sides use plain JSON and the shim only has
the standard library.
"""

from typing import Final, Literal, TypedDict

RUNSPEC_FILE: Final = "runspec.json"

ContainerKind = Literal["init", "sidecar", "main"]


class NetworkConfig(TypedDict):
    bridge: str
    link: str
    """The name of the host's end of the pair, unique on the machine."""
    address: str
    prefix: int
    gateway: str
    mtu: int


class MountConfig(TypedDict):
    source: str
    target: str
    read_only: bool


class HttpAction(TypedDict):
    scheme: str
    host: str
    """Empty for the pod's own address."""
    port: int
    path: str
    headers: list[tuple[str, str]]


class Action(TypedDict, total=False):
    """One of these: a command in the container, an HTTP GET, a TCP connection, or a pause."""

    exec: list[str]
    http: HttpAction
    tcp: tuple[str, int]
    sleep: float


class ProbeConfig(TypedDict):
    action: Action
    initial_delay: float
    period: float
    timeout: float
    successes: int
    failures: int
    grace: float | None


class ContainerConfig(TypedDict):
    name: str
    kind: ContainerKind
    root: str
    """`/` for the host's root, or the folder that an image name maps to."""
    argv: list[str]
    env: dict[str, str]
    cwd: str
    mounts: list[MountConfig]
    uid: int
    gid: int
    groups: list[int]
    capabilities: list[str]
    privileged: bool
    no_new_privileges: bool
    read_only_root: bool
    devices: list[str]
    memory: int | None
    cpu: int | None
    """In thousandths of a core."""
    tty: bool
    stdin: bool
    stdin_once: bool
    message_path: str
    message_from_logs: bool
    startup: ProbeConfig | None
    readiness: ProbeConfig | None
    liveness: ProbeConfig | None
    post_start: Action | None
    pre_stop: Action | None
    stop_signal: int
    restore: str
    """The folder of the checkpoint from which the container starts; empty if its program is executed."""


class RunSpec(TypedDict):
    namespace: str
    name: str
    uid: str
    node: str
    hostname: str
    restart_policy: Literal["Always", "OnFailure", "Never"]
    grace: float
    network: NetworkConfig | None
    host_ipc: bool
    share_pids: bool
    """Whether all containers see each other's processes."""
    address: str
    rootless: bool
    hidden: list[str]
    visible: list[str]
    """Parts of hidden folders that every pod may read: the interpreter and this package."""
    memory_volumes: dict[str, int]
    """Folder to mount a tmpfs on, and its size limit in bytes (0: the machine's default)."""
    scratch_volumes: list[str]
    """The names of the emptyDir volumes."""
    sysctls: dict[str, str]
    """By path below /proc/sys."""
    containers: list[ContainerConfig]
    cgroup: str
    """The pod's cgroup, relative to each hierarchy; empty when limits are by rlimit only."""
    first_backoff: float
    longest_backoff: float
    log_bytes: int
    criu: str
    """The folder of CRIU; empty if it is not installed."""

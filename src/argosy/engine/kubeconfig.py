"""Where the API server is and who we are, from a kubeconfig or from inside a pod.

Reads what kubectl reads: several files in `$KUBECONFIG` (the first that names a thing wins), inline data or
file names relative to the kubeconfig, every way for a user to prove who they are but `auth-provider`,
impersonation, and proxies from the kubeconfig or the environment. Files are read again when they change. One
extension is ours: a cluster may name a Unix socket to dial instead of its address; TLS and the name that is
verified stay those of the URL.
"""

import contextlib
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from argosy.engine.certificates import check_authority
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.credentials import Credentials, FileCredentials, FixedCredentials
from argosy.engine.impersonation import Headers, impersonation_headers
from argosy.engine.kubeconfig_entries import KubeconfigEntry, KubeconfigError
from argosy.engine.kubeconfig_users import load_credentials
from argosy.engine.proxies import environment_proxy
from argosy.wire.origin import Origin, Proxy

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
UNIX_SOCKET_EXTENSION = "argosy.dev/unix-socket"


class Connection(Struct, frozen=True):
    """How to reach one API server as one identity."""

    server: str
    credentials: Credentials = field(default_factory=FixedCredentials)
    certificate_authority: bytes | None = None
    """PEM; absent means the system's authorities."""
    authority_file: Path | None = None
    """Where that was read from, to be read again when it changes."""
    verify: bool = True
    server_name: str | None = None
    unix_socket: str | None = None
    proxy: str | None = None
    impersonation: Headers = ()
    """Headers of every request that say whom to act as."""
    namespace: str = "default"

    @staticmethod
    def from_kubeconfig(
        path: str | Path | None = None,
        context: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SystemClock(),
    ) -> "Connection":
        """The connection of a context (the current one by default) of a kubeconfig."""
        environment = os.environ if environment is None else environment
        return _connect(_load(path, environment), context, environment, clock)

    @staticmethod
    def in_cluster(
        folder: Path = SERVICE_ACCOUNT,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SystemClock(),
    ) -> "Connection":
        """The connection every pod with a service account has."""
        environment = os.environ if environment is None else environment
        if not _is_in_cluster(folder, environment):
            raise KubeconfigError(f"not in a cluster: KUBERNETES_SERVICE_HOST or {folder}/token is missing")
        host = environment["KUBERNETES_SERVICE_HOST"]
        host = f"[{host}]" if ":" in host else host
        server = f"https://{host}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}"
        authority, namespace = folder / "ca.crt", folder / "namespace"
        try:
            found = authority.read_bytes()
            check_authority(found)
        except OSError as error:
            raise KubeconfigError(f"{authority}: {error}") from error
        return Connection(
            server=server,
            credentials=FileCredentials(token=folder / "token", clock=clock),
            certificate_authority=found,
            authority_file=authority,
            proxy=environment_proxy(server, environment),
            namespace=namespace.read_text().strip() if namespace.exists() else "default",
        )

    @staticmethod
    def discover() -> "Connection":
        """In a pod its service account, elsewhere the kubeconfig."""
        if _is_in_cluster(SERVICE_ACCOUNT, os.environ):
            return Connection.in_cluster()
        return Connection.from_kubeconfig()


def _is_in_cluster(folder: Path, environment: Mapping[str, str]) -> bool:
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and (folder / "token").exists()


class _Config(Struct):
    origin: str
    current: str
    clusters: dict[str, KubeconfigEntry]
    users: dict[str, KubeconfigEntry]
    contexts: dict[str, KubeconfigEntry]


class _Named(Struct):
    name: str
    cluster: dict[str, object] | None = None
    user: dict[str, object] | None = None
    context: dict[str, object] | None = None


class _File(Struct, rename="kebab"):
    current_context: str | None = None
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None
    contexts: list[_Named] | None = None


def _load(path: str | Path | None, environment: Mapping[str, str]) -> _Config:
    paths = _paths(path, environment)
    config = _Config(", ".join(map(str, paths)), "", {}, {}, {})
    found = False
    for each in paths:
        if not each.exists():
            continue
        found = True
        _merge(config, _parse(each), each)
    if not found:
        raise KubeconfigError(f"no kubeconfig: {config.origin} does not exist")
    return config


def _paths(path: str | Path | None, environment: Mapping[str, str]) -> list[Path]:
    if path is not None:
        return [Path(path).expanduser()]
    listed = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path("~/.kube/config").expanduser()]


def _parse(path: Path) -> _File:
    try:
        return msgspec.convert(_parsed(path.read_bytes()) or {}, _File)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise KubeconfigError(f"{path}: {error}") from error


def _parsed(content: bytes) -> object:
    """YAML; JSON, which is YAML too, without loading what reads the rest of it."""
    if content.lstrip().startswith(b"{"):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(content)
    import yaml

    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _merge(config: _Config, file: _File, path: Path) -> None:
    config.current = config.current or file.current_context or ""
    folder = path.absolute().parent
    for cluster in file.clusters or ():
        entry = KubeconfigEntry(cluster.cluster or {}, folder, f"{path}: clusters[{cluster.name}]")
        config.clusters.setdefault(cluster.name, entry)
    for user in file.users or ():
        entry = KubeconfigEntry(user.user or {}, folder, f"{path}: users[{user.name}]")
        config.users.setdefault(user.name, entry)
    for context in file.contexts or ():
        entry = KubeconfigEntry(context.context or {}, folder, f"{path}: contexts[{context.name}]")
        config.contexts.setdefault(context.name, entry)


def _connect(
    config: _Config, context: str | None, environment: Mapping[str, str], clock: Clock
) -> Connection:
    name = context or config.current
    if not name:
        raise KubeconfigError(f"{config.origin}: no current-context; choose one of {sorted(config.contexts)}")
    chosen = _entry(config, config.contexts, "context", name)
    cluster = _entry(config, config.clusters, "cluster", chosen.text("cluster"))
    user_name = chosen.text("user")
    user = _entry(config, config.users, "user", user_name) if user_name else KubeconfigEntry({})
    server, unix_socket = _server(cluster, user), _unix_socket(cluster)
    return Connection(
        server=server,
        credentials=load_credentials(user, cluster, clock),
        certificate_authority=_authority(cluster),
        authority_file=None if cluster.text(f"{AUTHORITY}-data") else cluster.file(AUTHORITY),
        verify=not cluster.typed("insecure-skip-tls-verify", bool, False),
        server_name=cluster.text("tls-server-name") or None,
        unix_socket=unix_socket,
        proxy=None if unix_socket else _proxy(cluster, server, environment),
        impersonation=impersonation_headers(user),
        namespace=chosen.text("namespace") or "default",
    )


AUTHORITY = "certificate-authority"


def _entry(config: _Config, entries: dict[str, KubeconfigEntry], what: str, name: str) -> KubeconfigEntry:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise KubeconfigError(f"{config.origin}: no {what} named {name!r} (there is: {known})")
    return entries[name]


def _server(cluster: KubeconfigEntry, user: KubeconfigEntry) -> str:
    """The server's URL; one without a scheme has TLS if anything about TLS is given, as in kubectl."""
    server = cluster.text("server").rstrip("/")
    if not server:
        cluster.refuse("server", "must be given")
    if not urlsplit(server).netloc:
        secured = (cluster, AUTHORITY), (cluster, "insecure-skip-tls-verify"), (user, "client-certificate")
        tls = any(entry.value.get(name) or entry.value.get(f"{name}-data") for entry, name in secured)
        server = f"{'https' if tls else 'http'}://{server}"
    try:
        Origin.from_url(server)
    except ValueError as error:
        cluster.refuse("server", f"invalid value {server!r}: {error}")
    return server


def _authority(cluster: KubeconfigEntry) -> bytes | None:
    authority = cluster.data(AUTHORITY)
    if authority is not None:
        try:
            check_authority(authority)
        except ssl.SSLError as error:
            cluster.refuse(AUTHORITY, str(error))
    return authority


def _proxy(cluster: KubeconfigEntry, server: str, environment: Mapping[str, str]) -> str | None:
    """The cluster's own proxy, which loopback addresses are reached through too, or the environment's."""
    url = cluster.text("proxy-url")
    if not url:
        return environment_proxy(server, environment)
    try:
        Proxy.from_url(url)
    except ValueError as error:
        cluster.refuse("proxy-url", str(error))
    return url


def _unix_socket(cluster: KubeconfigEntry) -> str | None:
    path = (cluster.extension(UNIX_SOCKET_EXTENSION) or {}).get("path")
    return str(cluster.folder / str(path)) if path else None

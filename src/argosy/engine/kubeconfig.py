"""Loads the connection to an API server from a kubeconfig, or from a pod's service account.

Supports what kubectl supports: several files in `$KUBECONFIG` (the first one that defines an entry wins),
inline data and paths relative to the kubeconfig, all kinds of credentials except `auth-provider`,
impersonation, and proxies from the kubeconfig or the environment. Changed files are read again. One extension
is specific to Argosy: a cluster may have a Unix socket to connect to; TLS still verifies the host name of the
URL.
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
from argosy.kinds.text import unknown_name
from argosy.wire.origin import Origin, Proxy

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
UNIX_SOCKET_EXTENSION = "argosy.dev/unix-socket"


class Connection(Struct, frozen=True):
    """How to connect to an API server, and with which identity."""

    server: str
    credentials: Credentials = field(default_factory=FixedCredentials)
    certificate_authority: bytes | None = None
    """CA bundle in PEM; None means the system's certificate authorities."""
    authority_file: Path | None = None
    """The file of the CA bundle, which is read again when it changes."""
    verify: bool = True
    server_name: str | None = None
    unix_socket: str | None = None
    proxy: str | None = None
    impersonation: Headers = ()
    """Impersonation headers, sent with every request."""
    namespace: str = "default"

    @staticmethod
    def from_kubeconfig(
        path: str | Path | None = None,
        context: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SystemClock(),
    ) -> "Connection":
        """Return the connection of a context of a kubeconfig; the current context by default."""
        environment = os.environ if environment is None else environment
        return _connect(_load(path, environment), context, environment, clock)

    @staticmethod
    def in_cluster(
        folder: Path = SERVICE_ACCOUNT,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SystemClock(),
    ) -> "Connection":
        """Return the connection of a pod's service account."""
        environment = os.environ if environment is None else environment
        if not _is_in_cluster(folder, environment):
            raise KubeconfigError(f"not in a cluster: KUBERNETES_SERVICE_HOST or {folder}/token is missing")
        host = environment["KUBERNETES_SERVICE_HOST"]
        host = f"[{host}]" if ":" in host else host
        server = f"https://{host}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}"
        authority, namespace = folder / "ca.crt", folder / "namespace"
        try:
            bundle = authority.read_bytes()
            check_authority(bundle)
        except OSError as error:
            raise KubeconfigError(f"{authority}: {error}") from error
        return Connection(
            server=server,
            credentials=FileCredentials(token=folder / "token", clock=clock),
            certificate_authority=bundle,
            authority_file=authority,
            proxy=environment_proxy(server, environment),
            namespace=namespace.read_text().strip() if namespace.exists() else "default",
        )

    @staticmethod
    def discover() -> "Connection":
        """Return the connection of the service account within a pod, otherwise that of the kubeconfig."""
        if _is_in_cluster(SERVICE_ACCOUNT, os.environ):
            return Connection.in_cluster()
        return Connection.from_kubeconfig()


def _is_in_cluster(folder: Path, environment: Mapping[str, str]) -> bool:
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and (folder / "token").exists()


class _Config(Struct):
    files: str
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


def _load(kubeconfig: str | Path | None, environment: Mapping[str, str]) -> _Config:
    paths = _paths(kubeconfig, environment)
    config = _Config(", ".join(map(str, paths)), "", {}, {}, {})
    existing = [path for path in paths if path.exists()]
    for path in existing:
        _merge(config, _parse(path), path)
    if not existing:
        raise KubeconfigError(f"no kubeconfig: {config.files} does not exist")
    return config


def _paths(path: str | Path | None, environment: Mapping[str, str]) -> list[Path]:
    if path is not None:
        return [Path(path).expanduser()]
    paths = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return paths or [Path("~/.kube/config").expanduser()]


def _parse(path: Path) -> _File:
    try:
        return msgspec.convert(_parse_yaml(path.read_bytes()) or {}, _File)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise KubeconfigError(f"{path}: {error}") from error


def _parse_yaml(content: bytes) -> object:
    """Parse YAML. JSON is parsed without importing the YAML library, which is slow."""
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
        contexts = ", ".join(sorted(config.contexts))
        raise KubeconfigError(f"{config.files}: current-context is not set (known contexts: {contexts})")
    selected = _find_entry(config, config.contexts, "context", name)
    cluster = _find_entry(config, config.clusters, "cluster", selected.text("cluster"))
    user_name = selected.text("user")
    user = _find_entry(config, config.users, "user", user_name) if user_name else KubeconfigEntry({})
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
        namespace=selected.text("namespace") or "default",
    )


AUTHORITY = "certificate-authority"


def _find_entry(
    config: _Config, entries: dict[str, KubeconfigEntry], noun: str, name: str
) -> KubeconfigEntry:
    if name not in entries:
        raise KubeconfigError(f"{config.files}: {unknown_name(noun, name, entries)}")
    return entries[name]


def _server(cluster: KubeconfigEntry, user: KubeconfigEntry) -> str:
    """Return the server's URL. As in kubectl, a missing scheme is https if any TLS setting is present."""
    server = cluster.text("server").rstrip("/")
    if not server:
        cluster.reject("server", "must be set")
    if not urlsplit(server).netloc:
        tls_settings = (
            (cluster, AUTHORITY),
            (cluster, "insecure-skip-tls-verify"),
            (user, "client-certificate"),
        )
        tls = any(entry.value.get(name) or entry.value.get(f"{name}-data") for entry, name in tls_settings)
        server = f"{'https' if tls else 'http'}://{server}"
    try:
        Origin.from_url(server)
    except ValueError as error:
        cluster.reject("server", f"invalid value {server!r}: {error}")
    return server


def _authority(cluster: KubeconfigEntry) -> bytes | None:
    authority = cluster.data(AUTHORITY)
    if authority is not None:
        try:
            check_authority(authority)
        except ssl.SSLError as error:
            cluster.reject(AUTHORITY, str(error))
    return authority


def _proxy(cluster: KubeconfigEntry, server: str, environment: Mapping[str, str]) -> str | None:
    """Return the cluster's proxy, also for loopback addresses, or else that of the environment."""
    url = cluster.text("proxy-url")
    if not url:
        return environment_proxy(server, environment)
    try:
        Proxy.from_url(url)
    except ValueError as error:
        cluster.reject("proxy-url", str(error))
    return url


def _unix_socket(cluster: KubeconfigEntry) -> str | None:
    path = (cluster.extension(UNIX_SOCKET_EXTENSION) or {}).get("path")
    return str(cluster.folder / str(path)) if path else None

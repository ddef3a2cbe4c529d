"""Where the API server is and who we are, from a kubeconfig or from inside a pod.

Reads what kubectl reads: several files in `$KUBECONFIG` (the first that names a thing wins), inline data or
file names relative to the kubeconfig, tokens, token files, passwords, certificates and exec plugins. One
extension is ours: a cluster may name a Unix socket to dial instead of its address; TLS and the name that is
verified stay those of the URL.
"""

import base64
import binascii
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from argosy.engine.credentials import (
    Certificate,
    Credentials,
    ExecPlugin,
    FixedCredentials,
    Identity,
    TokenFile,
)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
UNIX_SOCKET_EXTENSION = "argosy.dev/unix-socket"


class KubeconfigError(Exception):
    """No usable connection settings: which file, which entry, what is wrong."""


class Connection(Struct, frozen=True):
    """How to reach one API server as one identity."""

    server: str
    credentials: Credentials = field(default_factory=FixedCredentials)
    certificate_authority: bytes | None = None
    """PEM; absent means the system's authorities."""
    verify: bool = True
    server_name: str | None = None
    unix_socket: str | None = None
    proxy: str | None = None
    namespace: str = "default"

    @staticmethod
    def from_kubeconfig(path: str | Path | None = None, context: str | None = None) -> "Connection":
        """The connection of a context (the current one by default) of a kubeconfig."""
        return _connect(_load(path), context)

    @staticmethod
    def in_cluster(
        folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] | None = None
    ) -> "Connection":
        """The connection every pod with a service account has."""
        environment = os.environ if environment is None else environment
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (folder / "token").exists():
            raise KubeconfigError(f"not in a cluster: KUBERNETES_SERVICE_HOST or {folder}/token is missing")
        host = f"[{host}]" if ":" in host else host
        namespace = folder / "namespace"
        return Connection(
            server=f"https://{host}:{port}",
            credentials=TokenFile(folder / "token"),
            certificate_authority=(folder / "ca.crt").read_bytes(),
            namespace=namespace.read_text().strip() if namespace.exists() else "default",
        )

    @staticmethod
    def discover() -> "Connection":
        """In a pod its service account, elsewhere the kubeconfig."""
        try:
            return Connection.in_cluster()
        except KubeconfigError:
            return Connection.from_kubeconfig()


class _Entry(Struct):
    """A named value of a kubeconfig, with the folder that its relative file names start from."""

    value: dict[str, object]
    folder: Path


class _Config(Struct):
    origin: str
    current: str
    clusters: dict[str, _Entry]
    users: dict[str, _Entry]
    contexts: dict[str, _Entry]


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


def _load(path: str | Path | None) -> _Config:
    paths = _paths(path)
    config = _Config(", ".join(map(str, paths)), "", {}, {}, {})
    found = False
    for each in paths:
        if not each.exists():
            continue
        found = True
        _merge(config, _parse(each), each.absolute().parent)
    if not found:
        raise KubeconfigError(f"no kubeconfig: {config.origin} does not exist")
    return config


def _paths(path: str | Path | None) -> list[Path]:
    if path is not None:
        return [Path(path).expanduser()]
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
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


def _merge(config: _Config, file: _File, folder: Path) -> None:
    config.current = config.current or file.current_context or ""
    for cluster in file.clusters or ():
        config.clusters.setdefault(cluster.name, _Entry(cluster.cluster or {}, folder))
    for user in file.users or ():
        config.users.setdefault(user.name, _Entry(user.user or {}, folder))
    for context in file.contexts or ():
        config.contexts.setdefault(context.name, _Entry(context.context or {}, folder))


def _connect(config: _Config, context: str | None) -> Connection:
    name = context or config.current
    if not name:
        raise KubeconfigError(f"{config.origin}: no current-context; choose one of {sorted(config.contexts)}")
    chosen = _entry(config, config.contexts, "context", name).value
    cluster = _entry(config, config.clusters, "cluster", str(chosen.get("cluster", "")))
    user_name = str(chosen.get("user", ""))
    user = _entry(config, config.users, "user", user_name) if user_name else _Entry({}, Path())
    server = _text(cluster, "server")
    if not server:
        raise KubeconfigError(f"{config.origin}: cluster {chosen.get('cluster')!r} has no server")
    return Connection(
        server=server.rstrip("/"),
        credentials=_credentials(user, cluster),
        certificate_authority=_data(cluster, "certificate-authority"),
        verify=not cluster.value.get("insecure-skip-tls-verify", False),
        server_name=_text(cluster, "tls-server-name") or None,
        unix_socket=_unix_socket(cluster),
        proxy=_text(cluster, "proxy-url") or None,
        namespace=str(chosen.get("namespace") or "default"),
    )


def _entry(config: _Config, entries: dict[str, _Entry], what: str, name: str) -> _Entry:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise KubeconfigError(f"{config.origin}: no {what} named {name!r} (there is: {known})")
    return entries[name]


def _credentials(user: _Entry, cluster: _Entry) -> Credentials:
    certificate = _certificate(user)
    if "exec" in user.value:
        return _exec_plugin(user, cluster)
    if token_file := _text(user, "tokenFile"):
        return TokenFile(user.folder / token_file, certificate)
    username = _text(user, "username")
    basic = (username, _text(user, "password")) if username else None
    return FixedCredentials(Identity(token=_text(user, "token"), basic=basic, certificate=certificate))


def _certificate(user: _Entry) -> Certificate | None:
    certificate, key = _data(user, "client-certificate"), _data(user, "client-key")
    if certificate is None or key is None:
        return None
    return Certificate(certificate, key)


class _EnvironmentVariable(Struct):
    name: str
    value: str = ""


class _Exec(Struct, rename="camel"):
    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[_EnvironmentVariable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


def _exec_plugin(user: _Entry, cluster: _Entry) -> ExecPlugin:
    try:
        settings = msgspec.convert(user.value["exec"], _Exec)
    except msgspec.ValidationError as error:
        raise KubeconfigError(f"exec plugin of a user in {user.folder}: {error}") from error
    command = settings.command
    if os.sep in command:
        command = str(user.folder / command)
    authority = _data(cluster, "certificate-authority")
    info: dict[str, object] = {"server": _text(cluster, "server")}
    if authority is not None:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    return ExecPlugin(
        command,
        settings.args or (),
        environment={variable.name: variable.value for variable in settings.env or ()},
        api_version=settings.api_version,
        cluster=info if settings.provide_cluster_info else None,
        install_hint=settings.install_hint,
    )


def _data(entry: _Entry, name: str) -> bytes | None:
    """PEM given inline as `<name>-data` or in a file as `<name>`; inline wins, as in kubectl."""
    inline, file = _text(entry, f"{name}-data"), _text(entry, name)
    try:
        if inline:
            return base64.b64decode(inline, validate=True)
        return (entry.folder / file).read_bytes() if file else None
    except (OSError, binascii.Error) as error:
        raise KubeconfigError(f"{name} of the kubeconfig in {entry.folder}: {error}") from error


def _text(entry: _Entry, name: str) -> str:
    value = entry.value.get(name)
    return "" if value is None else str(value)


def _unix_socket(cluster: _Entry) -> str | None:
    extensions = cluster.value.get("extensions")
    for extension in extensions if isinstance(extensions, list) else ():
        if isinstance(extension, dict) and extension.get("name") == UNIX_SOCKET_EXTENSION:
            path = (extension.get("extension") or {}).get("path")
            return str(cluster.folder / path) if path else None
    return None

import base64
import os
import pty
from pathlib import Path

import pytest
import yaml

from argosy.engine.client import Client
from argosy.engine.credentials import FileCredentials, FixedCredentials, Identity
from argosy.engine.errors import Unauthorized
from argosy.engine.kubeconfig import Connection
from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.kinds.kubernetes import ConfigMap
from tests.support.certificates import Authority, private_key
from tests.support.fake_apiserver import FakeServer
from tests.support.manual_clock import ManualClock

Fields = dict[str, object]


def write(path: Path, cluster: Fields, user: Fields, name: str = "one") -> Path:
    config = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "work"}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def test_inline_data_takes_precedence_over_files(tmp_path: Path, authority: Authority) -> None:
    inline = base64.b64encode(authority.certificate).decode()
    path = write(
        tmp_path / "config",
        {"server": "https://host:1/", "certificate-authority-data": inline, "certificate-authority": "no"},
        {"token": "abc"},
    )
    connection = Connection.from_kubeconfig(path)
    assert connection.server == "https://host:1"
    assert connection.certificate_authority == authority.certificate
    assert connection.authority_file is None
    assert connection.namespace == "work"
    assert (await connection.credentials.current()).headers == {"Authorization": "Bearer abc"}


def test_paths_are_relative_to_the_kubeconfig(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    path = write(tmp_path / "config", {"server": "https://h", "certificate-authority": "ca.crt"}, {})
    connection = Connection.from_kubeconfig(path)
    assert connection.certificate_authority == authority.certificate
    assert connection.authority_file == tmp_path / "ca.crt"


async def test_client_certificate_and_password_are_loaded(tmp_path: Path, authority: Authority) -> None:
    certificate = authority.issue("me")
    (tmp_path / "c").write_bytes(certificate.certificate)
    (tmp_path / "k").write_bytes(certificate.key)
    path = write(tmp_path / "a", {"server": "https://h"}, {"client-certificate": "c", "client-key": "k"})
    identity = await Connection.from_kubeconfig(path).credentials.current()
    assert identity.certificate == certificate
    path = write(tmp_path / "b", {"server": "https://h"}, {"username": "u", "password": "p"})
    identity = await Connection.from_kubeconfig(path).credentials.current()
    assert identity.headers == {"Authorization": "Basic dTpw"}


async def test_certificate_and_token_files_are_read_again(tmp_path: Path, authority: Authority) -> None:
    user: Fields = {"client-certificate": "c", "client-key": "k", "tokenFile": "t"}
    path, clock = write(tmp_path / "config", {"server": "https://h"}, user), ManualClock()

    def rotate(name: str) -> Identity:
        certificate = authority.issue(name)
        for file, content in {"c": certificate.certificate, "k": certificate.key, "t": name.encode()}.items():
            (tmp_path / file).write_bytes(content)
        return Identity(name, None, certificate)

    first = rotate("one")
    credentials = Connection.from_kubeconfig(path, clock=clock).credentials
    assert await credentials.current() == first
    second = rotate("two")
    clock.advance(61)
    assert await credentials.current() == second


async def test_first_of_several_kubeconfigs_that_defines_an_entry_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "1", {"server": "https://first"}, {}, "one")
    second = write(tmp_path / "2", {"server": "https://second"}, {}, "two")
    missing = tmp_path / "3"
    environment = {"KUBECONFIG": os.pathsep.join(map(str, (missing, first, second)))}
    assert Connection.from_kubeconfig(environment=environment).server == "https://first"
    assert Connection.from_kubeconfig(context="two", environment=environment).server == "https://second"


PROXY = {"HTTPS_PROXY": "http://environment:3128"}
SOCKET = {"name": "argosy.dev/unix-socket", "extension": {"path": "/run/api.sock"}}
CONNECTIONS: dict[str, tuple[Fields, Fields, dict[str, object]]] = {
    "HTTPS_PROXY in the environment: used": ({}, {}, {"proxy": "http://environment:3128"}),
    "proxy-url of the cluster: takes precedence over the environment": (
        {"proxy-url": "socks5://me:pw@p"},
        {},
        {"proxy": "socks5://me:pw@p"},
    ),
    "Unix socket: no proxy": (
        {"extensions": [SOCKET]},
        {},
        {"unix_socket": "/run/api.sock", "proxy": None},
    ),
    "loopback address: environment's proxy is not used": (
        {"server": "https://127.0.0.1:6443"},
        {},
        {"proxy": None},
    ),
    "loopback address with proxy-url: proxy is used": (
        {"server": "https://127.0.0.1:6443", "proxy-url": "http://p"},
        {},
        {"proxy": "http://p"},
    ),
    "server without scheme and TLS settings: http": (
        {"server": "h:8080"},
        {},
        {"server": "http://h:8080"},
    ),
    "server without scheme with insecure-skip-tls-verify: https": (
        {"server": "10.0.0.1:6443", "insecure-skip-tls-verify": True},
        {},
        {"server": "https://10.0.0.1:6443", "verify": False},
    ),
    "tls-server-name: verified by TLS": (
        {"tls-server-name": "kubernetes"},
        {},
        {"server_name": "kubernetes"},
    ),
    "as: impersonation headers": ({}, {"as": "jane"}, {"impersonation": (("Impersonate-User", "jane"),)}),
}


@pytest.mark.parametrize("case", CONNECTIONS)
def test_connection_from_kubeconfig(case: str, tmp_path: Path) -> None:
    cluster, user, want = CONNECTIONS[case]
    path = write(tmp_path / "config", {"server": "https://h", **cluster}, user)
    connection = Connection.from_kubeconfig(path, environment=PROXY)
    assert {name: getattr(connection, name) for name in want} == want


ENCRYPTED = Authority()
INVALID: dict[str, tuple[Fields, Fields, str]] = {
    "cluster without server: rejected": ({"server": ""}, {}, r"clusters\[one\]\.server: must be set"),
    "server with an unsupported scheme: rejected": (
        {"server": "ftp://h"},
        {},
        r"clusters\[one\]\.server: .*'ftp'; must be one of http, https",
    ),
    "certificate-authority-data that is not base64: rejected": (
        {"certificate-authority-data": "!"},
        {},
        r"clusters\[one\]\.certificate-authority-data: invalid base64",
    ),
    "certificate-authority file missing: rejected": (
        {"certificate-authority": "no"},
        {},
        r"clusters\[one\]\.certificate-authority: cannot read .*no",
    ),
    "certificate-authority without a certificate: rejected": (
        {"certificate-authority-data": base64.b64encode(b"x").decode()},
        {},
        r"clusters\[one\]\.certificate-authority: no valid PEM certificate",
    ),
    "proxy-url with an unsupported scheme: rejected": (
        {"proxy-url": "socks4://p"},
        {},
        r"clusters\[one\]\.proxy-url: .*'socks4'; must be one of http, https, socks5",
    ),
    "auth-provider: rejected": (
        {},
        {"auth-provider": {"name": "oidc"}},
        r"users\[one\]\.auth-provider: not supp",
    ),
    "as-groups without as: rejected": ({}, {"as-groups": ["g"]}, r"users\[one\]\.as-groups: "),
    "username and token: rejected": (
        {},
        {"token": "t", "username": "u"},
        r"users\[one\]\.username: .*only one",
    ),
    "client certificate without key: rejected": (
        {},
        {"client-certificate-data": base64.b64encode(b"x").decode()},
        r"users\[one\]\.client-certificate: .*client-key",
    ),
    "encrypted client key: rejected": (
        {},
        {
            "client-certificate-data": base64.b64encode(ENCRYPTED.certificate).decode(),
            "client-key-data": base64.b64encode(private_key(ENCRYPTED.key, b"secret")).decode(),
        },
        r"users\[one\]\.client-certificate: .*encrypted",
    ),
    "exec without command: rejected": ({}, {"exec": {}}, r"users\[one\]\.exec: .*command"),
    "exec with an unsupported apiVersion: rejected": (
        {},
        {"exec": {"command": "c", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
        r"users\[one\]\.exec\.apiVersion: .*v1alpha1.*must be .*v1beta1",
    ),
    "exec with an unknown interactiveMode: rejected": (
        {},
        {"exec": {"command": "c", "interactiveMode": "Maybe"}},
        r"users\[one\]\.exec: .*'Maybe'.*interactiveMode",
    ),
    "exec with interactiveMode Always without a terminal: rejected": (
        {},
        {"exec": {"command": "c", "interactiveMode": "Always"}},
        r"users\[one\]\.exec\.interactiveMode: Always requires a terminal",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_kubeconfig_is_rejected_with_file_and_field(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, user, want = INVALID[case]
    path = write(tmp_path / "config", {"server": "https://h", **cluster}, user)
    with Path(os.devnull).open() as nothing, pytest.raises(KubeconfigError, match=want) as caught:
        monkeypatch.setattr("sys.stdin", nothing)
        Connection.from_kubeconfig(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_unknown_context_error_lists_the_known_contexts(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"server": "https://h"}, {})
    with pytest.raises(KubeconfigError, match=r'unknown context "other" \(known contexts: one\)'):
        Connection.from_kubeconfig(path, "other")


def test_missing_kubeconfig_and_invalid_yaml_have_different_errors(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="does not exist"):
        Connection.from_kubeconfig(tmp_path / "none")
    (tmp_path / "bad").write_text("{[")
    with pytest.raises(KubeconfigError, match="bad"):
        Connection.from_kubeconfig(tmp_path / "bad")


def test_in_cluster_uses_the_service_account(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    for name, text in {"token": "t", "namespace": "mine\n"}.items():
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443", **PROXY}
    connection = Connection.in_cluster(tmp_path, environment)
    assert connection.server == "https://[fd00::1]:6443"
    assert connection.namespace == "mine"
    assert connection.authority_file == tmp_path / "ca.crt"
    assert connection.proxy == PROXY["HTTPS_PROXY"]
    assert isinstance(connection.credentials, FileCredentials)


def test_in_cluster_with_an_invalid_ca_file_is_an_error(tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(KubeconfigError, match=r"ca\.crt: .*no valid PEM certificate"):
        Connection.in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "h"})


def test_in_cluster_outside_of_a_pod_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="not in a cluster"):
        Connection.in_cluster(tmp_path, {})


def test_fixed_credentials_cannot_be_refreshed() -> None:
    assert FixedCredentials().refresh(Identity()) is False


def exec_user(folder: Path, script: str, **settings: object) -> Fields:
    plugin = folder / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    return {"exec": {"command": "./plugin", **settings}}


async def test_exec_command_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    settings = {"args": ["x"], "env": [{"name": "WHO", "value": "me"}]}
    user = exec_user(tmp_path, 'echo "{\\"status\\": {\\"token\\": \\"$WHO-$1\\"}}"', **settings)
    path = write(tmp_path / "config", {"server": "https://h"}, user)
    assert (await Connection.from_kubeconfig(path).credentials.current()).token == "me-x"


async def test_exec_plugin_is_not_run_if_the_user_has_a_token(tmp_path: Path) -> None:
    user = exec_user(tmp_path, "exit 1") | {"token": "mine"}
    path = write(tmp_path / "config", {"server": "https://h"}, user)
    assert (await Connection.from_kubeconfig(path).credentials.current()).token == "mine"


async def test_exec_plugin_with_provide_cluster_info_gets_the_cluster(
    tmp_path: Path, authority: Authority
) -> None:
    ask = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo \'{{"status": {{"token": "t"}}}}\''
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    cluster: Fields = {
        "server": "https://h",
        "certificate-authority": "ca.crt",
        "tls-server-name": "kubernetes",
        "proxy-url": "http://p:3128",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
    }
    path = write(tmp_path / "config", cluster, exec_user(tmp_path, ask, provideClusterInfo=True))
    await Connection.from_kubeconfig(path).credentials.current()
    assert yaml.safe_load((tmp_path / "info").read_text())["spec"]["cluster"] == {
        "server": "https://h",
        "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
        "tls-server-name": "kubernetes",
        "proxy-url": "http://p:3128",
        "config": {"audience": "a"},
    }


INTERACTIVE = {"Never": False, "IfAvailable": True, "Always": True}


@pytest.mark.parametrize("mode", INTERACTIVE)
async def test_exec_plugin_is_interactive_at_a_terminal_unless_never(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo \'{{"status": {{"token": "t"}}}}\''
    path = write(tmp_path / "config", {"server": "https://h"}, exec_user(tmp_path, ask, interactiveMode=mode))
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal, os.fdopen(ours):
        monkeypatch.setattr("sys.stdin", terminal)
        await Connection.from_kubeconfig(path).credentials.current()
    info = yaml.safe_load((tmp_path / "info").read_text())
    assert info["spec"]["interactive"] is INTERACTIVE[mode]


async def test_missing_exec_plugin_error_has_the_install_hint(tmp_path: Path) -> None:
    settings = {"command": "no-such-plugin-anywhere", "installHint": "pip install it"}
    path = write(tmp_path / "config", {"server": "https://h"}, {"exec": settings})
    with pytest.raises(Unauthorized, match="pip install it"):
        await Connection.from_kubeconfig(path).credentials.current()


async def test_watch_rejected_again_after_refresh_raises_unauthorized(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    credentials = FileCredentials(token=token)
    await credentials.current()
    token.write_text("two")
    async with FakeServer(tokens={"three"}) as server, Client(server.connection(credentials)) as client:
        with pytest.raises(Unauthorized):
            await anext(client.watch(ConfigMap))

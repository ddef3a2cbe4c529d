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


async def test_inline_data_wins_over_files(tmp_path: Path, authority: Authority) -> None:
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


def test_file_names_are_relative_to_the_kubeconfig(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    path = write(tmp_path / "config", {"server": "https://h", "certificate-authority": "ca.crt"}, {})
    connection = Connection.from_kubeconfig(path)
    assert connection.certificate_authority == authority.certificate
    assert connection.authority_file == tmp_path / "ca.crt"


async def test_a_certificate_or_a_password_identifies_too(tmp_path: Path, authority: Authority) -> None:
    given = authority.issue("me")
    (tmp_path / "c").write_bytes(given.certificate)
    (tmp_path / "k").write_bytes(given.key)
    path = write(tmp_path / "a", {"server": "https://h"}, {"client-certificate": "c", "client-key": "k"})
    identity = await Connection.from_kubeconfig(path).credentials.current()
    assert identity.certificate == given
    path = write(tmp_path / "b", {"server": "https://h"}, {"username": "u", "password": "p"})
    identity = await Connection.from_kubeconfig(path).credentials.current()
    assert identity.headers == {"Authorization": "Basic dTpw"}


async def test_a_certificate_and_a_token_in_files_are_read_again(
    tmp_path: Path, authority: Authority
) -> None:
    user: Fields = {"client-certificate": "c", "client-key": "k", "tokenFile": "t"}
    path, clock = write(tmp_path / "config", {"server": "https://h"}, user), ManualClock()

    def rotate(name: str) -> Identity:
        given = authority.issue(name)
        for file, content in {"c": given.certificate, "k": given.key, "t": name.encode()}.items():
            (tmp_path / file).write_bytes(content)
        return Identity(name, None, given)

    first = rotate("one")
    credentials = Connection.from_kubeconfig(path, clock=clock).credentials
    assert await credentials.current() == first
    second = rotate("two")
    clock.advance(61)
    assert await credentials.current() == second


async def test_of_several_files_the_first_that_names_a_thing_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "1", {"server": "https://first"}, {}, "one")
    second = write(tmp_path / "2", {"server": "https://second"}, {}, "two")
    missing = tmp_path / "3"
    environment = {"KUBECONFIG": os.pathsep.join(map(str, (missing, first, second)))}
    assert Connection.from_kubeconfig(environment=environment).server == "https://first"
    assert Connection.from_kubeconfig(context="two", environment=environment).server == "https://second"


PROXY = {"HTTPS_PROXY": "http://environment:3128"}
SOCKET = {"name": "argosy.dev/unix-socket", "extension": {"path": "/run/api.sock"}}
CONNECTIONS: dict[str, tuple[Fields, Fields, dict[str, object]]] = {
    "the environment's proxy": ({}, {}, {"proxy": "http://environment:3128"}),
    "the cluster's proxy wins over the environment's": (
        {"proxy-url": "socks5://me:pw@p"},
        {},
        {"proxy": "socks5://me:pw@p"},
    ),
    "a Unix socket is reached without a proxy": (
        {"extensions": [SOCKET]},
        {},
        {"unix_socket": "/run/api.sock", "proxy": None},
    ),
    "a loopback address is reached without the environment's proxy": (
        {"server": "https://127.0.0.1:6443"},
        {},
        {"proxy": None},
    ),
    "a loopback address is reached through the cluster's proxy": (
        {"server": "https://127.0.0.1:6443", "proxy-url": "http://p"},
        {},
        {"proxy": "http://p"},
    ),
    "a server without scheme or anything about TLS is plain HTTP": (
        {"server": "h:8080"},
        {},
        {"server": "http://h:8080"},
    ),
    "a server without scheme has TLS if that is not to be verified": (
        {"server": "10.0.0.1:6443", "insecure-skip-tls-verify": True},
        {},
        {"server": "https://10.0.0.1:6443", "verify": False},
    ),
    "the name that TLS verifies": ({"tls-server-name": "kubernetes"}, {}, {"server_name": "kubernetes"}),
    "whom to act as": ({}, {"as": "jane"}, {"impersonation": (("Impersonate-User", "jane"),)}),
}


@pytest.mark.parametrize("sentence", CONNECTIONS)
def test_a_kubeconfig_says(sentence: str, tmp_path: Path) -> None:
    cluster, user, want = CONNECTIONS[sentence]
    path = write(tmp_path / "config", {"server": "https://h", **cluster}, user)
    connection = Connection.from_kubeconfig(path, environment=PROXY)
    assert {name: getattr(connection, name) for name in want} == want


ENCRYPTED = Authority()
REFUSED: dict[str, tuple[Fields, Fields, str]] = {
    "a cluster without a server": ({"server": ""}, {}, r"clusters\[one\]\.server: must be given"),
    "a server of another scheme": (
        {"server": "ftp://h"},
        {},
        r"clusters\[one\]\.server: .*'ftp'; must be one of http, https",
    ),
    "data that is not base64": (
        {"certificate-authority-data": "!"},
        {},
        r"clusters\[one\]\.certificate-authority-data: not base64",
    ),
    "an authority that is missing": (
        {"certificate-authority": "no"},
        {},
        r"clusters\[one\]\.certificate-authority: cannot read .*no",
    ),
    "an authority that is no certificate": (
        {"certificate-authority-data": base64.b64encode(b"x").decode()},
        {},
        r"clusters\[one\]\.certificate-authority: no PEM certificate",
    ),
    "a proxy of an unknown kind": (
        {"proxy-url": "socks4://p"},
        {},
        r"clusters\[one\]\.proxy-url: .*'socks4'; must be one of http, https, socks5",
    ),
    "an auth provider": ({}, {"auth-provider": {"name": "oidc"}}, r"users\[one\]\.auth-provider: not supp"),
    "groups without a user to act as": ({}, {"as-groups": ["g"]}, r"users\[one\]\.as-groups: "),
    "a password beside a token": ({}, {"token": "t", "username": "u"}, r"users\[one\]\.username: .*only one"),
    "a certificate without key": (
        {},
        {"client-certificate-data": base64.b64encode(b"x").decode()},
        r"users\[one\]\.client-certificate: .*client-key",
    ),
    "a key that is encrypted": (
        {},
        {
            "client-certificate-data": base64.b64encode(ENCRYPTED.certificate).decode(),
            "client-key-data": base64.b64encode(private_key(ENCRYPTED.key, b"secret")).decode(),
        },
        r"users\[one\]\.client-certificate: .*encrypted",
    ),
    "an exec plugin without command": ({}, {"exec": {}}, r"users\[one\]\.exec: .*command"),
    "an exec plugin of an old version": (
        {},
        {"exec": {"command": "c", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
        r"users\[one\]\.exec\.apiVersion: .*v1alpha1.*must be .*v1beta1",
    ),
    "an exec plugin of an unknown interactive mode": (
        {},
        {"exec": {"command": "c", "interactiveMode": "Maybe"}},
        r"users\[one\]\.exec: .*'Maybe'.*interactiveMode",
    ),
    "an exec plugin that needs a terminal where there is none": (
        {},
        {"exec": {"command": "c", "interactiveMode": "Always"}},
        r"users\[one\]\.exec\.interactiveMode: Always needs a terminal",
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(
    sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, user, want = REFUSED[sentence]
    path = write(tmp_path / "config", {"server": "https://h", **cluster}, user)
    with Path(os.devnull).open() as nothing, pytest.raises(KubeconfigError, match=want) as refused:
        monkeypatch.setattr("sys.stdin", nothing)
        Connection.from_kubeconfig(path)
    assert str(refused.value).startswith(f"{path}: ")


def test_an_unknown_context_is_told_with_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"server": "https://h"}, {})
    with pytest.raises(KubeconfigError, match=r"no context named 'other' \(there is: one\)"):
        Connection.from_kubeconfig(path, "other")


def test_no_kubeconfig_and_no_yaml_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="does not exist"):
        Connection.from_kubeconfig(tmp_path / "none")
    (tmp_path / "bad").write_text("{[")
    with pytest.raises(KubeconfigError, match="bad"):
        Connection.from_kubeconfig(tmp_path / "bad")


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, authority: Authority) -> None:
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


def test_in_a_pod_an_authority_that_is_no_certificate_is_said(tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(KubeconfigError, match=r"ca\.crt: .*no PEM certificate"):
        Connection.in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "h"})


def test_outside_of_a_pod_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="not in a cluster"):
        Connection.in_cluster(tmp_path, {})


def test_credentials_written_down_cannot_be_refreshed() -> None:
    assert FixedCredentials().refresh(Identity()) is False


def exec_user(folder: Path, script: str, **settings: object) -> Fields:
    plugin = folder / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    return {"exec": {"command": "./plugin", **settings}}


async def test_an_exec_plugin_is_found_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    settings = {"args": ["x"], "env": [{"name": "WHO", "value": "me"}]}
    user = exec_user(tmp_path, 'echo "{\\"status\\": {\\"token\\": \\"$WHO-$1\\"}}"', **settings)
    path = write(tmp_path / "config", {"server": "https://h"}, user)
    assert (await Connection.from_kubeconfig(path).credentials.current()).token == "me-x"


async def test_an_exec_plugin_is_not_run_for_a_user_who_has_a_token(tmp_path: Path) -> None:
    user = exec_user(tmp_path, "exit 1") | {"token": "mine"}
    path = write(tmp_path / "config", {"server": "https://h"}, user)
    assert (await Connection.from_kubeconfig(path).credentials.current()).token == "mine"


async def test_an_exec_plugin_that_asks_is_told_all_about_its_cluster(
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
async def test_an_exec_plugin_may_ask_at_a_terminal(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo \'{{"status": {{"token": "t"}}}}\''
    path = write(tmp_path / "config", {"server": "https://h"}, exec_user(tmp_path, ask, interactiveMode=mode))
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal, os.fdopen(ours):
        monkeypatch.setattr("sys.stdin", terminal)
        await Connection.from_kubeconfig(path).credentials.current()
    told = yaml.safe_load((tmp_path / "info").read_text())
    assert told["spec"]["interactive"] is INTERACTIVE[mode]


async def test_an_exec_plugin_that_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    settings = {"command": "no-such-plugin-anywhere", "installHint": "pip install it"}
    path = write(tmp_path / "config", {"server": "https://h"}, {"exec": settings})
    with pytest.raises(Unauthorized, match="pip install it"):
        await Connection.from_kubeconfig(path).credentials.current()


async def test_a_watch_that_is_refused_again_says_that_it_is_unauthorized(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    credentials = FileCredentials(token=token)
    await credentials.current()
    token.write_text("two")
    async with FakeServer(tokens={"three"}) as server, Client(server.connection(credentials)) as client:
        with pytest.raises(Unauthorized):
            await anext(client.watch(ConfigMap))

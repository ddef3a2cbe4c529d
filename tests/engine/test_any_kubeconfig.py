"""Kubeconfigs of every kind against a real kube-apiserver, through real proxies, compared with kubectl.

The API server says who it takes us for (SelfSubjectReview). Behind a proxy it has a name that only the proxy
can resolve, so a request that reaches it went through the proxy.
"""

import base64
import contextlib
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from msgspec import Struct, field

from argosy.engine.client import Client
from argosy.engine.errors import Forbidden, Unauthorized, Unavailable
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import ConfigMap
from tests.support import commands
from tests.support.certificates import LOOPBACK, Authority
from tests.support.manual_clock import ManualClock
from tests.support.proxies import RunningProxy, running_proxy
from tests.support.servers import ADMIN, READER, STRANGER, Server

Fields = dict[str, object]

MASTERS = "system:masters"
EVERYBODY = "system:authenticated"


class Row(Struct, kw_only=True):
    """A kubeconfig, and whom the API server takes its user for."""

    user: Fields = field(default_factory=lambda: {"token": ADMIN.token})
    cluster: Fields = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """`PROXY` in a value stands for the address of the proxy that the row runs."""
    proxy: str = ""
    """The scheme of the proxy; empty for none."""
    login: str = ""
    want_user: str = ADMIN.name
    want_groups: list[str] = field(default_factory=lambda: [MASTERS, EVERYBODY])
    want_extra: dict[str, list[str]] = field(default_factory=dict)
    want_uid: str = ADMIN.uid


def proxied(scheme: str, login: str = "", **fields: object) -> Row:
    at = f"{login}@" if login else ""
    return Row(proxy=scheme, login=login, cluster={"proxy-url": f"{scheme}://{at}PROXY", **fields})


JANE: Fields = {"as": "jane"}
PLUGIN = {
    "command": "./plugin",
    "apiVersion": "client.authentication.k8s.io/v1",
    "interactiveMode": "Never",
}
CERTIFICATE: Fields = {"client-certificate": "client.crt", "client-key": "client.key"}
UNREACHABLE = "127.0.0.1:9"
"""Where no proxy listens."""

ROWS: dict[str, Row] = {
    "token: same user as kubectl": Row(),
    "token file: same user as kubectl": Row(user={"tokenFile": "token"}),
    "client certificate files: same user as kubectl": Row(
        user=CERTIFICATE, want_user="carol", want_groups=[MASTERS, EVERYBODY], want_uid=""
    ),
    "exec plugin: same user as kubectl": Row(user={"exec": PLUGIN}),
    "CA file with comments that are not ASCII: trusted": Row(
        cluster={"certificate-authority-data": None, "certificate-authority": "commented.crt"}
    ),
    "as: impersonated user": Row(
        user={"token": ADMIN.token, **JANE}, want_user="jane", want_groups=[EVERYBODY], want_uid=""
    ),
    "as with uid, groups and extra: impersonated user": Row(
        user={
            "token": ADMIN.token,
            "as": "jane",
            "as-uid": "jane-1",
            "as-groups": ["team-a", "team-b, c"],
            "as-user-extra": {"scopes": ["view", "edit"], "example.com/a%b": ["x"]},
        },
        want_user="jane",
        want_groups=["team-a", "team-b, c", EVERYBODY],
        want_extra={"scopes": ["view", "edit"], "example.com/a%b": ["x"]},
        want_uid="jane-1",
    ),
    "certificate and as: impersonated user": Row(
        user={**CERTIFICATE, **JANE}, want_user="jane", want_groups=[EVERYBODY], want_uid=""
    ),
    "exec plugin and as: impersonated user": Row(
        user={"exec": PLUGIN, **JANE}, want_user="jane", want_groups=[EVERYBODY], want_uid=""
    ),
    "HTTP proxy: used": proxied("http"),
    "HTTP proxy with a login: used": proxied("http", "me:secret"),
    "HTTPS proxy: used": proxied("https"),
    "HTTPS proxy with a login: used": proxied("https", "me:secret"),
    "SOCKS5 proxy: used": proxied("socks5"),
    "SOCKS5 proxy with a login: used": proxied("socks5", "me:secret"),
    "HTTPS_PROXY in the environment: used": Row(proxy="http", environment={"HTTPS_PROXY": "http://PROXY"}),
    "https_proxy without a scheme: used": Row(proxy="http", environment={"https_proxy": "PROXY"}),
    "SOCKS5 proxy with a login in the environment: used": Row(
        proxy="socks5", login="me:secret", environment={"HTTPS_PROXY": "socks5://me:secret@PROXY"}
    ),
    "proxy-url and HTTPS_PROXY: proxy-url is used": Row(
        proxy="http", cluster={"proxy-url": "http://PROXY"}, environment={"HTTPS_PROXY": UNREACHABLE}
    ),
    "loopback address and HTTPS_PROXY: no proxy": Row(environment={"HTTPS_PROXY": UNREACHABLE}),
    "as through a proxy: impersonated user": Row(
        user={"token": ADMIN.token, **JANE},
        cluster={"proxy-url": "socks5://PROXY"},
        proxy="socks5",
        want_user="jane",
        want_groups=[EVERYBODY],
        want_uid="",
    ),
}


class Place:
    """A folder with a kubeconfig and the files that it may name."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server
        keys = server.folder / "pki"
        self.authority = Authority.load((keys / "ca.crt").read_bytes(), (keys / "ca.key").read_bytes())
        self.write_certificate("carol")
        (folder / "token").write_text(ADMIN.token)
        comment = "# Autorité de Zürich 証明書\n".encode()
        (folder / "commented.crt").write_bytes(comment + self.authority.certificate + b"\xff\n")
        plugin = folder / "plugin"
        answer = {
            "apiVersion": PLUGIN["apiVersion"],
            "kind": "ExecCredential",
            "status": {"token": ADMIN.token},
        }
        plugin.write_text(f"#!/bin/sh\necho '{msgspec.json.encode(answer).decode()}'\n")
        plugin.chmod(0o755)
        own = self.authority.issue("proxy", LOOPBACK, x509.DNSName("localhost"))
        (folder / "proxy.pem").write_bytes(own.certificate + own.key)

    def write_certificate(self, name: str, authority: Authority | None = None) -> None:
        issued = (authority or self.authority).issue(name, organization=MASTERS)
        (self.folder / "client.crt").write_bytes(issued.certificate)
        (self.folder / "client.key").write_bytes(issued.key)

    def write_kubeconfig(self, user: Fields, cluster: Fields | None = None) -> Path:
        fields: Fields = {
            "server": self.server.url,
            "certificate-authority-data": base64.b64encode(self.authority.certificate).decode(),
            **(cluster or {}),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {k: v for k, v in fields.items() if v is not None}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = self.folder / "config"
        path.write_bytes(msgspec.json.encode(config))
        return path

    async def write_row(self, row: Row, proxy: RunningProxy | None) -> tuple[Path, dict[str, str]]:
        """The kubeconfig and the environment of a row."""
        cluster, environment = row.cluster, row.environment
        if proxy is not None:
            address = await proxy.address()
            cluster = {
                name: value.replace("PROXY", address) if isinstance(value, str) else value
                for name, value in cluster.items()
            }
            environment = {name: value.replace("PROXY", address) for name, value in environment.items()}
            cluster["server"] = f"https://api.invalid:{self.server.port}"
            cluster["tls-server-name"] = "localhost"
        return self.write_kubeconfig(row.user, cluster), environment


@pytest.fixture
def place(tmp_path: Path, real_apiserver: Server) -> Place:
    return Place(tmp_path, real_apiserver)


class UserInfo(Struct):
    username: str
    uid: str = ""
    groups: list[str] = field(default_factory=list)
    extra: dict[str, list[str]] = field(default_factory=dict)


class _Status(Struct, rename="camel"):
    user_info: UserInfo


class _SelfSubjectReview(Struct):
    status: _Status


async def who_am_i(client: Client) -> UserInfo:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    return msgspec.json.decode(answer, type=_SelfSubjectReview).status.user_info


def kubectl(kubeconfig: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": commands.environment()["PATH"], "HOME": str(kubeconfig.parent), **environment}
    return commands.run(
        [str(commands.KUBECTL), "--kubeconfig", str(kubeconfig), *words], variables, code=None
    )


@pytest.mark.parametrize("case", ROWS)
async def test_the_api_server_sees_the_same_user_as_with_kubectl(case: str, place: Place) -> None:
    row = ROWS[case]
    with running_proxy(place.folder, row.proxy, row.login) as proxy:
        kubeconfig, environment = await place.write_row(row, proxy)
        async with Client(Connection.from_kubeconfig(kubeconfig, environment=environment)) as client:
            ours = await who_am_i(client)
        tunnels = proxy.logged("tunnel") if proxy is not None else []
        theirs = kubectl(kubeconfig, environment, "auth", "whoami", "-o", "json")
        assert theirs.returncode == 0, theirs.stderr
        assert ours == msgspec.json.decode(theirs.stdout, type=_SelfSubjectReview).status.user_info
    if proxy is not None:
        assert tunnels == [f"api.invalid:{place.server.port}"]
        assert len(proxy.logged("tunnel")) > len(tunnels), "kubectl did not use the proxy"
    ours.extra.pop("authentication.kubernetes.io/credential-id", None)
    assert ours == UserInfo(row.want_user, row.want_uid, row.want_groups, row.want_extra)


REFUSING = {scheme: proxied(scheme) for scheme in ("http", "https", "socks5")}


@pytest.mark.parametrize("scheme", REFUSING)
async def test_a_proxy_that_requires_a_login_rejects_us_as_it_does_kubectl(scheme: str, place: Place) -> None:
    row = REFUSING[scheme]
    row.login = "me:secret"
    with running_proxy(place.folder, row.proxy, row.login) as proxy:
        assert proxy is not None
        kubeconfig, environment = await place.write_row(row, proxy)
        async with Client(Connection.from_kubeconfig(kubeconfig, environment=environment)) as client:
            with pytest.raises(Unavailable, match=r"407|requires a login"):
                await who_am_i(client)
        assert kubectl(kubeconfig, environment, "auth", "whoami").returncode != 0
        assert not proxy.logged("tunnel")


Act = Callable[[Client], Awaitable[object]]


async def first(chunks: AsyncGenerator[object, None]) -> object:
    async with contextlib.aclosing(chunks):
        return await anext(chunks)


REQUESTS: dict[str, Act] = {
    "get: impersonated": lambda client: client.get(ConfigMap, "a", "default"),
    "list: impersonated": lambda client: client.list(ConfigMap),
    "create: impersonated": lambda client: client.create(ConfigMap, {"metadata": {"name": "a"}}, "default"),
    "delete: impersonated": lambda client: client.delete(ConfigMap, "a", "default"),
    "watch: impersonated": lambda client: first(client.watch(ConfigMap)),
    "logs: impersonated": lambda client: first(client.logs("a", "default")),
    "exec: impersonated": lambda client: client.exec("a", "default", ["true"]),
}


@pytest.mark.parametrize("case", REQUESTS)
async def test_every_kind_of_request_is_impersonated(case: str, place: Place) -> None:
    kubeconfig = place.write_kubeconfig({"token": ADMIN.token, **JANE})
    async with Client(Connection.from_kubeconfig(kubeconfig)) as client:
        with pytest.raises(Forbidden, match='User "jane" cannot'):
            await REQUESTS[case](client)


@contextlib.asynccontextmanager
async def rotating(place: Place, user: Fields) -> AsyncIterator[tuple[Client, ManualClock]]:
    """A client whose files are looked at again when its clock is advanced."""
    clock = ManualClock()
    connection = Connection.from_kubeconfig(place.write_kubeconfig(user), clock=clock)
    async with Client(connection) as client:
        yield client, clock


async def test_a_replaced_client_certificate_is_used_without_a_restart(place: Place) -> None:
    async with rotating(place, CERTIFICATE) as (client, clock):
        assert (await who_am_i(client)).username == "carol"
        place.write_certificate("dave")
        clock.advance(61)
        assert (await who_am_i(client)).username == "dave"


async def test_a_watch_continues_while_its_client_certificate_is_replaced(place: Place) -> None:
    async with rotating(place, CERTIFICATE) as (client, clock):
        listed = await client.list(ConfigMap, "kube-public")
        async with contextlib.aclosing(
            client.watch(ConfigMap, "kube-public", resource_version=listed.resource_version)
        ) as events:
            body = {"metadata": {"generateName": "seen-"}}
            before = await client.create(ConfigMap, body, "kube-public")
            assert (await anext(events)).object.metadata.name == before.metadata.name
            place.write_certificate("dave")
            clock.advance(61)
            assert (await who_am_i(client)).username == "dave"
            after = await client.create(ConfigMap, body, "kube-public")
            assert (await anext(events)).object.metadata.name == after.metadata.name


async def test_a_rejected_client_certificate_is_read_again_at_once(place: Place) -> None:
    place.write_certificate("mallory", Authority())
    async with rotating(place, CERTIFICATE) as (client, _):
        with pytest.raises(Unauthorized):
            await who_am_i(client)
        place.write_certificate("dave")
        assert (await who_am_i(client)).username == "dave"


async def test_a_replaced_token_is_used_without_a_restart(place: Place) -> None:
    async with rotating(place, {"tokenFile": "token"}) as (client, clock):
        assert (await who_am_i(client)).username == ADMIN.name
        (place.folder / "token").write_text(READER.token)
        clock.advance(61)
        assert (await who_am_i(client)).username == READER.name


REFRESHED: dict[str, Act] = {name: act for name, act in REQUESTS.items() if "list" not in name}


@pytest.mark.parametrize("case", REFRESHED)
async def test_a_rejected_token_is_read_again_at_once(case: str, place: Place) -> None:
    """The stranger has no rights, but is known."""
    (place.folder / "token").write_text("wrong")
    async with rotating(place, {"tokenFile": "token"}) as (client, _):
        with pytest.raises(Unauthorized):
            await REQUESTS[case](client)
        (place.folder / "token").write_text(STRANGER.token)
        with pytest.raises(Forbidden, match='User "stranger" cannot'):
            await REQUESTS[case](client)


async def test_a_replaced_ca_is_read_again_at_once_if_the_server_is_not_trusted(place: Place) -> None:
    path = place.folder / "ca.crt"
    path.write_bytes(Authority().certificate)
    kubeconfig = place.write_kubeconfig(
        {"token": ADMIN.token}, {"certificate-authority-data": None, "certificate-authority": "ca.crt"}
    )
    async with Client(Connection.from_kubeconfig(kubeconfig)) as client:
        with pytest.raises(Unavailable, match="certificate"):
            await who_am_i(client)
        path.write_bytes(place.authority.certificate)
        assert (await who_am_i(client)).username == ADMIN.name


async def test_in_a_pod_token_and_ca_are_read_again(place: Place) -> None:
    (place.folder / "ca.crt").write_bytes(Authority().certificate)
    environment = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(place.server.port),
    }
    clock = ManualClock()
    async with Client(Connection.in_cluster(place.folder, environment, clock)) as client:
        with pytest.raises(Unavailable, match="certificate"):
            await who_am_i(client)
        (place.folder / "ca.crt").write_bytes(place.authority.certificate)
        assert (await who_am_i(client)).username == ADMIN.name
        (place.folder / "token").write_text(READER.token)
        clock.advance(61)
        assert (await who_am_i(client)).username == READER.name

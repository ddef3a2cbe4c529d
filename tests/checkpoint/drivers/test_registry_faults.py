"""The registry client against servers that are no registry, or a hostile one."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from argosy.checkpoint.drivers import registry_http
from argosy.checkpoint.drivers.registry import MAX_PAGES, Registry, digest_of
from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.image_names import parse_image, parse_repository
from argosy.checkpoint.images import MANIFEST_TYPE
from argosy.checkpoint.registry_login import Login
from argosy.engine.certificates import load_certificate
from tests.support.certificates import LOOPBACK, Authority
from tests.support.files import file_names
from tests.support.raw_server import Call, RawServer, hang, http, http_json, raw_server

HTML = http(200, b"<html>Sign in</html>", {"Content-Type": "text/html"})
MANIFEST = {"Content-Type": MANIFEST_TYPE}
WRONG = f"sha256:{'0' * 64}"


async def ask_all(server: RawServer, tmp_path: Path) -> dict[str, str]:
    """Return what each request ended with: the code of its error, or its result."""
    repository = parse_repository(f"{server.address}/a/b")
    (tmp_path / "tar").write_bytes(b"layer")
    outcomes: dict[str, str] = {}
    async with Registry(server.address, Login("user", "secret")) as registry:
        requests: dict[str, Callable[[], Awaitable[object]]] = {
            "head": lambda: registry.head_manifest(repository.image("main-1")),
            "get": lambda: registry.get_manifest(repository.image("main-1")),
            "tags": lambda: registry.tags(repository),
            "blob": lambda: registry.get_blob(repository, WRONG, tmp_path / "target", 1 << 20),
            "push blob": lambda: registry.push_blob(repository, tmp_path / "tar", digest_of(b"layer")),
            "push": lambda: registry.push_manifest(repository.image("main-1"), b"{}"),
            "delete": lambda: registry.delete_manifest(repository.image(WRONG)),
        }
        for name, request in requests.items():
            try:
                outcomes[name] = str(await request())
            except RegistryError as error:
                assert "secret" not in str(error)
                assert len(str(error)) < 1000
                outcomes[name] = error.code
    assert file_names(tmp_path) == {"tar"}
    return outcomes


def always(response: bytes) -> Callable[[Call], Awaitable[bytes]]:
    async def answer(_: Call) -> bytes:
        return response

    return answer


GARBAGE = {
    "HTML with status 200: invalid response or digest": (HTML, {"InvalidResponse", "DigestMismatch", "None"}),
    "HTML with status 404: not found": (
        http(404, b"<html>", {"Content-Type": "text/html"}),
        {"NotFound", "None", "False"},
    ),
    "truncated JSON: invalid response or digest": (
        http(200, b'{"tags": ["a"', MANIFEST),
        {"InvalidResponse", "DigestMismatch", "None"},
    ),
    "JSON list instead of an object: invalid response or digest": (
        http_json(200, ["a"]),
        {"InvalidResponse", "DigestMismatch", "None"},
    ),
    "header with the digest of other content: believed for HEAD only": (
        http(200, b"{}", {**MANIFEST, "Docker-Content-Digest": WRONG}),
        {WRONG, "[]", "DigestMismatch", "InvalidResponse", "None"},
    ),
    "header with a digest that is not one: invalid response or digest": (
        http(200, b"{}", {**MANIFEST, "Docker-Content-Digest": "x" * 5000}),
        {"[]", "DigestMismatch", "InvalidResponse", "None"},
    ),
    "redirect to itself: invalid response": (http(307, b"", {"Location": "/v2/"}), {"InvalidResponse"}),
    "redirect to a URL without a host: invalid response": (
        http(307, b"", {"Location": "http://"}),
        {"InvalidResponse"},
    ),
    "redirect to a host without TLS: invalid response": (
        http(307, b"", {"Location": "http://169.254.169.254/latest/"}),
        {"InvalidResponse"},
    ),
    "status 500: unavailable": (http(500, b"\xff\xfe"), {"Unavailable"}),
    "status 429: too many requests": (http(429), {"TooManyRequests"}),
    "answer in another protocol: unreachable": (b"220 smtp ready\r\n\r\n", {"Unreachable"}),
    "status 401 without a challenge: unauthorized": (http(401), {"Unauthorized"}),
    "token server that answers with HTML: unauthorized": (
        http(401, b"", {"WWW-Authenticate": 'Bearer realm="/token"'}),
        {"Unauthorized"},
    ),
    "token server without TLS: invalid response": (
        http(401, b"", {"WWW-Authenticate": 'Bearer realm="http://10.0.0.1/token"'}),
        {"InvalidResponse"},
    ),
    "manifest of 5 MiB: unreachable or invalid response": (
        http(200, b"x" * (5 << 20), MANIFEST),
        {"Unreachable", "InvalidResponse", "None"},
    ),
}


@pytest.mark.parametrize("case", GARBAGE)
async def test_garbage_is_an_error_or_nothing(case: str, tmp_path: Path) -> None:
    response, want = GARBAGE[case]
    async with raw_server(always(response)) as server:
        outcomes = await ask_all(server, tmp_path)
    assert set(outcomes.values()) <= want, outcomes


async def test_server_that_never_answers_is_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_http, "REQUEST_SECONDS", 0.05)
    async with raw_server(hang) as server, Registry(server.address) as registry:
        with pytest.raises(RegistryError, match="timed out") as raised:
            await registry.get_blob(parse_repository(f"{server.address}/a"), WRONG, tmp_path / "target")
    assert raised.value.code == "Timeout"
    assert raised.value.is_temporary


async def test_body_that_stops_in_the_middle_is_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_http, "REQUEST_SECONDS", 0.3)

    async def half(call: Call) -> bytes:
        if call.path == "/more":
            await asyncio.Event().wait()
        return b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"

    async with raw_server(half) as server, Registry(server.address) as registry:
        with pytest.raises(RegistryError) as raised:
            await registry.get_blob(parse_repository(f"{server.address}/a"), WRONG, tmp_path / "target")
    assert raised.value.code == "Timeout"
    assert not file_names(tmp_path)


async def test_pages_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.checkpoint.drivers.registry.MAX_PAGES", 20)
    assert MAX_PAGES >= 1000

    async def page(call: Call) -> bytes:
        number = int(call.query.get("last", 0)) + 1
        link = f'</v2/a/tags/list?n=1&last={number}>; rel="next"'
        return http_json(200, {"name": "a", "tags": [str(number)]}, {"Link": link})

    async with raw_server(page) as server, Registry(server.address) as registry:
        with pytest.raises(RegistryError, match="too many pages"):
            await registry.tags(parse_repository(f"{server.address}/a"))
        assert len(server.calls) == 20


async def test_page_that_refers_to_itself_is_an_error() -> None:
    async def page(call: Call) -> bytes:
        return http_json(200, {"tags": ["x"]}, {"Link": f'<{call.target}>; rel="next"'})

    async with raw_server(page) as server, Registry(server.address) as registry:
        with pytest.raises(RegistryError, match="too many pages"):
            await registry.tags(parse_repository(f"{server.address}/a"))
        assert len(server.calls) == 1


async def test_blob_larger_than_stated_is_not_received(tmp_path: Path) -> None:
    async with raw_server(always(http(200, b"x" * 5000))) as server, Registry(server.address) as registry:
        with pytest.raises(RegistryError, match="more than 100 bytes"):
            await registry.get_blob(parse_repository(f"{server.address}/a"), WRONG, tmp_path / "t", 100)
    assert not file_names(tmp_path)


async def test_bearer_token_is_asked_for_once_and_only_sent_to_the_registry() -> None:
    async def answer(call: Call) -> bytes:
        if call.path == "/token":
            assert call.headers["authorization"].startswith("Basic ")
            assert call.query == {"service": "r", "scope": "repository:a:pull"}
            return http_json(200, {"token": "t0ken"})
        if call.headers.get("authorization") != "Bearer t0ken":
            return http(401, b"", {"WWW-Authenticate": 'Bearer realm="/token",service="r"'})
        return http_json(200, {"tags": ["main-1"]})

    async with raw_server(answer) as server, Registry(server.address, Login("u", "p")) as registry:
        repository = parse_repository(f"{server.address}/a")
        assert await registry.tags(repository) == ["main-1"]
        assert await registry.tags(repository) == ["main-1"]
        assert [call.path for call in server.calls].count("/token") == 1


async def test_redirect_to_another_host_is_followed_without_the_login(tmp_path: Path) -> None:
    authority = Authority()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(tls, authority.issue("storage", LOOPBACK))
    async with raw_server(always(http(200, b"layer")), tls) as storage:

        async def answer(call: Call) -> bytes:
            if "authorization" not in call.headers:
                return http(401, b"", {"WWW-Authenticate": "Basic realm=x"})
            return http(307, b"", {"Location": f"{storage.url}/layer"})

        async with raw_server(answer) as server:
            login, repository = Login("u", "p"), parse_repository(f"{server.address}/a")
            async with Registry(server.address, login, authority=authority.certificate) as registry:
                await registry.get_blob(repository, digest_of(b"layer"), tmp_path / "layer")
            async with Registry(server.address, login) as registry:
                with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED"):
                    await registry.get_blob(repository, digest_of(b"layer"), tmp_path / "other")
        assert [call.headers["authorization"] for call in server.calls if "authorization" in call.headers]
        assert ["authorization" in call.headers for call in storage.calls] == [False]
    assert file_names(tmp_path) == {"layer"}


def server_context(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, authority.issue("server", LOOPBACK))
    return context


async def test_registry_with_an_authority_of_its_own_redirects_to_a_storage_that_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = Authority(), Authority("public")
    (tmp_path / "system.pem").write_bytes(public.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    async with raw_server(always(http(200, b"layer")), server_context(public)) as storage:
        redirect = always(http(307, b"", {"Location": f"{storage.url}/layer"}))
        target = tmp_path / "layer"
        for authority in (private, public):
            async with (
                raw_server(redirect, server_context(authority)) as server,
                Registry(server.url, authority=private.certificate) as registry,
            ):
                repository = parse_repository(f"{server.address}/a")
                if authority is private:
                    await registry.get_blob(repository, digest_of(b"layer"), target)
                    continue
                with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED"):
                    await registry.tags(repository)
    assert target.read_bytes() == b"layer"


def test_plain_http_is_for_loopback_only() -> None:
    with pytest.raises(RegistryError, match="plain HTTP is only used for loopback"):
        Registry("http://registry.example")
    assert Registry("localhost:5000").host == "localhost:5000"


async def test_unreachable_registry_is_an_error() -> None:
    async with raw_server(hang) as server:
        address = server.address
    async with Registry(address) as registry:
        with pytest.raises(RegistryError) as raised:
            await registry.head_manifest(parse_image(f"{address}/a:1"))
    assert raised.value.code == "Unreachable"


async def test_registry_with_an_untrusted_certificate_is_unreachable() -> None:
    """It may be trusted soon: a certificate is renewed on one side first."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(tls, Authority().issue("registry", LOOPBACK))
    async with raw_server(hang, tls) as server, Registry(server.url) as registry:
        with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED") as raised:
            await registry.head_manifest(parse_image(f"{server.address}/a:1"))
    assert raised.value.is_temporary

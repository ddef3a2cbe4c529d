"""Questions about checkpoint images, answered by a real registry."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from argosy.checkpoint.drivers.registry_driver import RegistryDriver
from argosy.checkpoint.image_requests import DeleteImages, FindNewest, FoundImages, VerifyImages
from argosy.checkpoint.registry_login import Login
from argosy.plan.drivers import Refusal
from tests.support.certificates import Authority
from tests.support.registry import (
    PASSWORD,
    PROGRAM,
    USERNAME,
    RunningRegistry,
    push_image,
    running_registry,
)

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")
CREDENTIALS = {"username": USERNAME.encode(), "password": PASSWORD.encode()}
DRIVER = RegistryDriver()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("private"), login=True) as running:
        yield running


async def push(server: RunningRegistry, *tags: str, repository: str, owner: str = "") -> None:
    for tag in tags:
        await push_image(server.address, f"{repository}:{tag}", Login(USERNAME, PASSWORD), owner)


async def find(server: RunningRegistry, repository: str, *containers: str) -> FoundImages:
    request = FindNewest(f"{server.address}/{repository}", containers, "team/mine")
    found = await DRIVER.call(request, CREDENTIALS)
    assert isinstance(found, FoundImages)
    return found


async def test_newest_complete_tags_are_found_and_foreign_ones_ignored(server: RunningRegistry) -> None:
    name = "newest"
    await push(server, "a-10", "b-10", "a-20", "b-20", "a-30", "latest", "a-x", repository=name)
    await push(server, "a-40", "b-40", repository=name, owner="team/other")
    await push(server, "a-21", "b-21", repository=name, owner="team/mine")
    found = await find(server, name, "a", "b")
    assert found.stamp == 21
    assert found.images == {c: f"{server.address}/{name}:{c}-21" for c in ("a", "b")}
    assert set(found.digests) == {"a", "b"}


async def test_without_complete_tags_nothing_is_found(server: RunningRegistry) -> None:
    await push(server, "a-1", repository="half")
    assert await find(server, "half", "a", "b") == FoundImages()
    with pytest.raises(Refusal) as refused:
        await find(server, "missing", "a")
    assert refused.value.code == "NotFound"


async def test_images_are_verified_by_existence_and_digest(server: RunningRegistry) -> None:
    await push(server, "a-1", repository="verified")
    image = f"{server.address}/verified:a-1"
    found = await DRIVER.call(VerifyImages({"a": image}), CREDENTIALS)
    assert isinstance(found, FoundImages)
    assert await DRIVER.call(VerifyImages({"a": image}, found.digests), CREDENTIALS) == found
    with pytest.raises(Refusal, match="DigestMismatch"):
        await DRIVER.call(VerifyImages({"a": image}, {"a": "sha256:0"}), CREDENTIALS)
    with pytest.raises(Refusal, match="ImageNotFound"):
        await DRIVER.call(VerifyImages({"a": f"{server.address}/verified:a-2"}), CREDENTIALS)


async def test_deleted_images_are_gone_and_deleting_them_again_is_fine(server: RunningRegistry) -> None:
    await push(server, "a-1", repository="deleted")
    image = f"{server.address}/deleted:a-1"
    for _ in range(2):
        await DRIVER.call(DeleteImages((image,)), CREDENTIALS)
    with pytest.raises(Refusal, match="ImageNotFound"):
        await DRIVER.call(VerifyImages({"a": image}), CREDENTIALS)


async def test_a_refused_login_and_an_incomplete_one_are_reported(server: RunningRegistry) -> None:
    request = VerifyImages({"a": f"{server.address}/x:a-1"})
    with pytest.raises(Refusal) as refused:
        await DRIVER.call(request, {"username": b"x", "password": b"y"})
    assert refused.value.code == "Unauthorized"
    with pytest.raises(Refusal, match="key 'password' missing"):
        await DRIVER.call(request, {"username": b"x"})


async def test_a_registry_that_does_not_answer_is_asked_again() -> None:
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
        await DRIVER.call(VerifyImages({"a": "127.0.0.1:1/x:a-1"}), {})


async def test_registry_elsewhere_is_asked_without_tls_only_if_it_is_listed(
    server: RunningRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(server, "a-1", repository="plain")
    image = f"{server.address}/plain:a-1"
    monkeypatch.setattr("argosy.checkpoint.drivers.registry._is_loopback", lambda _host: False)
    found = await RegistryDriver([server.address]).call(VerifyImages({"a": image}, {}), CREDENTIALS)
    assert isinstance(found, FoundImages)
    with pytest.raises(OSError, match="SSL"):
        await DRIVER.call(VerifyImages({"a": image}, {}), CREDENTIALS)


@contextmanager
def registry_of(authority: Authority, folder: Path) -> Iterator[str]:
    """Run a registry whose certificate an authority of its own has signed; yields its address.

    It is another address of this machine than those that are reached without TLS.
    """
    certificate = authority.issue("registry", x509.IPAddress(ip_address("0.0.0.0")))
    with running_registry(folder, login=True, certificate=certificate) as running:
        yield running.address.replace("127.0.0.1", "0.0.0.0")


async def ask(driver: RegistryDriver, address: str, secret: dict[str, bytes] = CREDENTIALS) -> None:
    """Ask for an image that does not exist: that it does not is the answer of a registry that is trusted."""
    with pytest.raises(Refusal) as refused:
        await driver.call(VerifyImages({"a": f"{address}/x:a-1"}), secret)
    assert refused.value.code == "ImageNotFound"


async def test_registry_with_a_private_ca_is_trusted_by_the_file_as_it_is_now(tmp_path: Path) -> None:
    authority, file = Authority(), tmp_path / "ca.crt"
    driver = RegistryDriver(authority=file)
    with registry_of(authority, tmp_path) as address:
        request = VerifyImages({"a": f"{address}/x:a-1"})
        with pytest.raises(OSError, match=f"^--registry-ca {file}: No such file or directory$"):
            await driver.call(request, CREDENTIALS)
        file.write_text("no certificate")
        with pytest.raises(OSError, match=f"^--registry-ca {file}: no valid PEM certificate: none found$"):
            await driver.call(request, CREDENTIALS)
        file.write_bytes(Authority().certificate)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await driver.call(request, CREDENTIALS)
        file.write_bytes(Authority("other").certificate + authority.certificate)
        await ask(driver, address)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await DRIVER.call(request, CREDENTIALS)


async def test_certificates_in_the_secret_count_before_those_in_the_file(tmp_path: Path) -> None:
    authority, file = Authority(), tmp_path / "ca.crt"
    file.write_bytes(Authority().certificate)
    with registry_of(authority, tmp_path) as address:
        secret = {**CREDENTIALS, "ca.crt": authority.certificate}
        for driver in (DRIVER, RegistryDriver(authority=file), RegistryDriver(authority=tmp_path / "gone")):
            await ask(driver, address, secret)
        with pytest.raises(Refusal) as refused:
            request = VerifyImages({"a": f"{address}/x:a-1"})
            await DRIVER.call(request, {**CREDENTIALS, "ca.crt": b"?"})
    assert refused.value.code == "InvalidCredentials"
    assert refused.value.message == "key 'ca.crt': no valid PEM certificate: none found"


async def test_registry_without_tls_does_not_need_the_file(server: RunningRegistry, tmp_path: Path) -> None:
    await ask(RegistryDriver([server.address], authority=tmp_path / "gone"), server.address)


async def test_problem_with_the_file_is_logged_when_it_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ca.crt"
    driver = RegistryDriver(authority=file)
    caplog.set_level(logging.WARNING)
    for content in (b"", b"", Authority().certificate, b""):
        file.write_bytes(content)
        with pytest.raises(OSError, match=r"registry-ca|Connect call failed"):
            await driver.call(VerifyImages({"a": "0.0.0.0:1/x:a-1"}), {})
    assert [record.message for record in caplog.records] == ["registries are not asked"] * 2

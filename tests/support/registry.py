"""Runs a real OCI registry, Debian's docker-registry, on loopback."""

import hashlib
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from argosy.checkpoint.drivers.registry import Registry, digest_of
from argosy.checkpoint.image_names import parse_image
from argosy.checkpoint.images import MANIFEST_TYPE, OWNER
from argosy.checkpoint.registry_login import Login
from argosy.engine.certificates import Certificate
from tests.support.servers import free_port, is_listening
from tests.support.waiting import wait_for

PROGRAM = shutil.which("docker-registry")
USERNAME, PASSWORD = "trainer", "wave-4711"
HTPASSWD = f"{USERNAME}:$2b$05$2hFzX1pIbimGIYYwRQTUs.FwxZ5lGwTNQryTzPq3K9cqY4/X2TCk6\n"
"""The password hashed with bcrypt, the only kind that the registry accepts."""


@dataclass(frozen=True)
class RunningRegistry:
    address: str
    folder: Path

    def blob(self, content: bytes) -> Path:
        """Return the file of a blob with this content."""
        sha256 = hashlib.sha256(content).hexdigest()
        return self.folder / f"storage/docker/registry/v2/blobs/sha256/{sha256[:2]}/{sha256}/data"

    @property
    def blobs(self) -> list[Path]:
        """The files with the content of blobs."""
        return sorted(self.folder.glob("storage/docker/registry/v2/blobs/*/*/*/data"))


@contextmanager
def running_registry(
    folder: Path,
    *,
    login: bool = False,
    enter: Sequence[str] = (),
    port: int = 0,
    host: str = "127.0.0.1",
    certificate: Certificate | None = None,
    storage: Path | None = None,
) -> Iterator[RunningRegistry]:
    """Run a registry for the duration of the block.

    `enter` is a command that executes others elsewhere, where `host` is an address. With a certificate it
    speaks TLS. `storage` is the folder for its content.
    """
    assert PROGRAM is not None
    port = port or free_port()
    config: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(storage or folder / "storage")},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": f"{host}:{port}", **(_tls(folder, certificate) if certificate else {})},
    }
    if login:
        (folder / "htpasswd").write_text(HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "registry", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*enter, PROGRAM, "serve", str(folder / "config.yml")], stdout=log, stderr=subprocess.STDOUT
        )
    try:

        def listens() -> bool:
            return is_listening(host, port, enter) if enter or certificate else _answers(host, port)

        wait_for(lambda: process.poll() is not None or listens(), "the registry does not answer")
        assert process.poll() is None, (folder / "log").read_text()
        yield RunningRegistry(f"{host}:{port}", folder)
    finally:
        process.kill()
        process.wait()


def _tls(folder: Path, certificate: Certificate) -> dict[str, object]:
    (folder / "server.crt").write_bytes(certificate.certificate)
    (folder / "server.key").write_bytes(certificate.key)
    return {"tls": {"certificate": str(folder / "server.crt"), "key": str(folder / "server.key")}}


def _answers(host: str, port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/v2/", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code == 401
    except OSError:
        return False


async def push_image(address: str, name: str, login: Login | None = None, owner: str = "") -> None:
    """Push the smallest image, whose manifest may name the owner of a checkpoint; `name` has no host."""
    image = parse_image(f"{address}/{name}")
    content = name.encode()
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(content)}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "layers": [],
        "config": {**config, "size": len(content)},
        **({"annotations": {OWNER: owner}} if owner else {}),
    }
    async with Registry(address, login) as registry:
        await registry.push_blob(image.repository, content, digest_of(content))
        await registry.push_manifest(image, msgspec.json.encode(manifest))

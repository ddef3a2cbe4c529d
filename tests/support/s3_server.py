"""Runs a real S3 server on loopback: versitygw, which keeps objects as files."""

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import assets
from tests.support.builds import S3_SERVER
from tests.support.servers import free_port, is_listening
from tests.support.waiting import wait_for

BUCKET = "checkpoints"
_ACCESS_KEY, _SECRET_KEY = "trainer", "wave-4711"


def missing_s3_server() -> str:
    """Return why no S3 server can be run; empty if one can."""
    try:
        assets.find(S3_SERVER)
    except assets.MissingAsset:
        return f"{S3_SERVER} is not built; run scripts/kubernetes build s3"
    return ""


def require_s3_server() -> None:
    """Skip a test that needs the server if it is not built; with ARGOSY_REQUIRE_ALL it fails."""
    if problem := missing_s3_server():
        if os.environ.get("ARGOSY_REQUIRE_ALL") == "1":
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)


@dataclass(frozen=True)
class RunningS3:
    endpoint: str
    folder: Path

    @property
    def credentials(self) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    @property
    def objects(self) -> Path:
        """The folder with the objects of the bucket."""
        return self.folder / "objects" / BUCKET


@contextmanager
def running_s3(
    folder: Path, *, enter: Sequence[str] = (), host: str = "127.0.0.1", port: int = 0
) -> Iterator[RunningS3]:
    """Run a server with one bucket for the duration of the block.

    `enter` is a command that executes others elsewhere, where `host` is an address. A folder in which a
    server has run before has its objects.
    """
    port = port or free_port()
    (folder / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").mkdir(exist_ok=True)
    options = [
        "--port",
        f"{host}:{port}",
        "--access",
        _ACCESS_KEY,
        "--secret",
        _SECRET_KEY,
        "--keep-alive",
    ]
    backend = ["posix", "--sidecar", str(folder / "metadata"), str(folder / "objects")]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*enter, str(assets.find(S3_SERVER)), *options, "--quiet", *backend],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:

        def listens() -> bool:
            return is_listening(host, port, enter) if enter else _answers(host, port)

        wait_for(lambda: process.poll() is not None or listens(), "the S3 server does not answer")
        assert process.poll() is None, (folder / "log").read_text()
        yield RunningS3(f"http://{host}:{port}", folder)
    finally:
        process.kill()
        process.wait()


def _answers(host: str, port: int) -> bool:
    with suppress(urllib.error.HTTPError):
        try:
            urllib.request.urlopen(f"http://{host}:{port}/", timeout=5).close()
        except urllib.error.URLError as error:
            return isinstance(error, urllib.error.HTTPError)
    return True

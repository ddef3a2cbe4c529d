"""Tests for the helper as a process, against HTTP endpoints that respond correctly or not."""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

import argosy.helper
from argosy.helper.files import replace_file
from argosy.operator.endpoint_credentials import EndpointCredentials, make_credentials

SCRIPT = Path(argosy.helper.__file__).with_name("__main__.py")

Answer = tuple[int, object]
Script = Callable[[str, Mapping[str, str]], Answer]


@contextmanager
def endpoint(answer: Script, tls: ssl.SSLContext | None = None) -> Iterator[dict[str, str]]:
    """An operator endpoint with these responses; yields the environment of a pod that uses it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            code, body = answer(url.path, dict(parse_qsl(url.query)))
            if self.headers["Authorization"] != "Bearer secret":
                code, body = 401, {"message": "no such token"}
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(code)
            if code == 302:
                self.send_header("Location", content.decode())
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield {
            "PATH": os.environ["PATH"],
            "ARGOSY_URL": f"{'https' if tls else 'http'}://localhost:{server.server_port}",
            "ARGOSY_TOKEN": "secret",
            "ARGOSY_NAMESPACE": "default",
            "ARGOSY_JOB": "mnist",
        }
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def helper(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(SCRIPT), *arguments]
    return subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=30, check=False
    )


def test_wait_prints_its_progress_and_ends_when_the_phase_is_reached() -> None:
    states = iter(
        [
            (200, {"reached": False, "etag": "1", "message": "1 of 2 running"}),
            (503, {"message": "starting"}),
            (200, {"reached": False, "etag": "2", "message": "2 of 2 placed"}),
            (200, {"reached": True, "etag": "3", "message": ""}),
        ]
    )
    etags: list[str] = []

    def answer(path: str, query: Mapping[str, str]) -> Answer:
        assert path == "/v1/jobs/default/mnist/roles/worker"
        assert query["phase"] == "Running"
        etags.append(query.get("etag", ""))
        return next(states)

    with endpoint(answer) as environment:
        result = helper(environment, "wait", "worker=Running", "--deadline", "20")
    assert result.returncode == 0, result.stderr
    assert [line.rsplit(" (", 1)[0] for line in result.stdout.splitlines()] == [
        "argosy: waiting for role worker to be Running: 1 of 2 running",
        "argosy: waiting for role worker to be Running: 2 of 2 placed",
        "argosy: role worker is Running",
    ]
    assert "503 starting" in result.stderr
    assert etags == ["", "1", "1", "2"]


def test_wait_fails_with_the_reason_when_the_phase_cannot_be_reached() -> None:
    with endpoint(lambda *_: (200, {"unreachable": True, "message": "the job failed"})) as environment:
        result = helper(environment, "wait", "worker=Running")
    assert result.returncode == 1
    assert result.stderr == "argosy: role worker will not become Running: the job failed\n"


def test_wait_fails_at_its_deadline() -> None:
    with endpoint(lambda *_: (502, {"message": "bad gateway"})) as environment:
        result = helper(environment, "wait", "worker=Running", "--deadline", "0.5")
    assert result.returncode == 2
    assert result.stderr.endswith("argosy: role worker was not Running within 0.5 s\n")


def test_rejected_token_is_not_retried() -> None:
    with endpoint(lambda *_: (200, {})) as environment:
        result = helper({**environment, "ARGOSY_TOKEN": "other"}, "wait", "worker=Running")
    assert result.returncode == 1
    assert result.stderr == "argosy: cannot wait for role worker: 401 no such token\n"


def test_redirect_is_not_followed_with_the_token() -> None:
    paths: list[str] = []

    def other(path: str, query: Mapping[str, str]) -> Answer:
        paths.append(path)
        return 200, {"reached": True}

    with (
        endpoint(other) as elsewhere,
        endpoint(lambda *_: (302, elsewhere["ARGOSY_URL"].encode())) as environment,
    ):
        result = helper(environment, "wait", "worker=Running", "--deadline", "0.5")
    assert (result.returncode, paths) == (2, [])


@pytest.fixture(scope="module")
def trust() -> EndpointCredentials:
    return make_credentials(("localhost",), datetime.now(UTC))


def test_certificate_is_verified_with_the_authority_of_the_pod(
    trust: EndpointCredentials, tmp_path: Path
) -> None:
    with endpoint(lambda *_: (200, {"reached": True}), tls(trust, tmp_path)) as environment:
        result = helper({**environment, "ARGOSY_CA": trust.ca}, "wait", "worker=Running")
    assert result.returncode == 0, result.stderr


STRANGERS = {
    "other authority": {"ARGOSY_CA": make_credentials(("localhost",), datetime.now(UTC)).ca},
    "authorities of the system": {"ARGOSY_CA": ""},
}


@pytest.mark.parametrize("strange", STRANGERS.values(), ids=STRANGERS.keys())
def test_token_is_not_sent_to_an_unverified_server(
    trust: EndpointCredentials, tmp_path: Path, strange: dict[str, str]
) -> None:
    with endpoint(lambda *_: (200, {"reached": True}), tls(trust, tmp_path)) as environment:
        result = helper({**environment, **strange}, "wait", "worker=Running")
    assert result.returncode == 1
    assert "the operator's certificate is not signed by the CA of this pod" in result.stderr


def tls(trust: EndpointCredentials, folder: Path) -> ssl.SSLContext:
    certificate = folder / "certificate"
    certificate.write_text(trust.certificate_key + trust.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


HEAVY = {"asyncio", "concurrent.futures", "dataclasses", "inspect", "logging", "subprocess", "urllib.request"}
STARTS = {
    "prepare: no network modules": (
        ("remote-exec", "--kubectl", sys.executable, "--to"),
        HEAVY | {"http.client", "json", "socket", "ssl"},
    ),
    "hosts: no heavy modules": (("hosts", "--once", "--deadline", "0.1"), HEAVY),
    "wait: no heavy modules": (("wait", "worker=Running", "--deadline", "0.1"), HEAVY),
    "initializer: no heavy modules": (
        ("cache", "--key", "a.b", "--cacheURI", "https://127.0.0.1:1", "--max-retries", "0", "--roles", "a"),
        HEAVY,
    ),
}


@pytest.mark.parametrize(("arguments", "unwanted"), STARTS.values(), ids=STARTS)
def test_helper_does_not_import_unneeded_modules(
    tmp_path: Path, arguments: Sequence[str], unwanted: set[str]
) -> None:
    """What its start costs is mostly what it imports; `bench/helper.py` measures it."""
    where = [str(tmp_path)] if arguments[-1] == "--to" else []
    with endpoint(lambda *_: (200, {"reached": True})) as environment:
        command = [sys.executable, "-I", "-X", "importtime", str(SCRIPT), *arguments, *where]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if "|" in line}
    assert {"argparse", "argosy.helper.commands"} <= imported, result.stderr
    assert not imported & unwanted


def test_missing_environment_variables_are_named() -> None:
    result = helper({}, "wait", "worker=Running")
    assert result.returncode == 1
    assert result.stderr.startswith("argosy: ARGOSY_URL is not set")


def test_invalid_usage_has_its_own_exit_code() -> None:
    assert helper({}, "wait", "worker").returncode == 64


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    target = tmp_path / "etc" / "hostfile"
    target.parent.mkdir()
    target.write_text("old")
    replace_file(target, b"mnist-worker-0 slots=2\n", 0o644)
    assert target.read_text() == "mnist-worker-0 slots=2\n"
    assert [path.name for path in target.parent.iterdir()] == ["hostfile"]
    assert target.stat().st_mode & 0o777 == 0o644


def test_helper_runs_as_a_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "argosy.helper", "--help"], capture_output=True, text=True, check=True
    )
    assert "remote-exec" in result.stdout


def test_commands_run_in_order_until_one_fails() -> None:
    def answer(path: str, query: Mapping[str, str]) -> Answer:
        if path.endswith("/roles/worker"):
            return 200, {"reached": True}
        return 404, {"message": "no role of that name"}

    with endpoint(answer) as environment:
        steps = [
            "wait",
            "worker=Running",
            "then",
            "wait",
            "launcher=Running",
            "then",
            "wait",
            "b=Failed",
        ]
        result = helper(environment, *steps)
    assert result.returncode == 1
    assert result.stdout.startswith("argosy: role worker is Running")
    assert result.stderr == "argosy: cannot wait for role launcher: 404 no role of that name\n"

"""Tests for the helper that keeps host files current, as a process, against a real HTTP server."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

import argosy.helper
from argosy.helper.hosts import read_answer

SCRIPT = Path(argosy.helper.__file__).with_name("__main__.py")
DEADLINE_SECONDS = 60.0


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Operator:
    """An endpoint that serves one host list. A request with its ETag waits for another one, as the real
    endpoint does; each answer or failure can be set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        self.hosts: list[str] = []
        self.waits: list[str] = []
        self.etags: list[str] = []
        self.acks: list[dict[str, str]] = []
        self.failures: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        """Answers that are given before any other to requests for hosts."""
        self.ack_status = 200
        self.port = 0
        self.is_up = False
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None

    @property
    def etag(self) -> str:
        return f"{self.version}-{'0' * 16}"

    @property
    def hostfile(self) -> Path:
        return self.folder / "etc" / "hostfile"

    def change(self, *hosts: str, version: int | None = None) -> str:
        with self._changed:
            self.version = self.version + 1 if version is None else version
            self.hosts = list(hosts)
            self._changed.notify_all()
        return self.etag

    def answer(self, query: dict[str, str]) -> tuple[int, bytes]:
        self.etags.append(query.get("etag", ""))
        self.waits.append(query.get("wait", ""))
        if not self.failures.empty():
            return self.failures.get()
        seconds = float(query["wait"].removesuffix("s"))
        with self._changed:
            self._changed.wait_for(lambda: not self.is_up or self._has_news(query), seconds)
            if not self.is_up:
                raise ConnectionAbortedError
            if not self.hosts:
                return 503, b'{"message": "no host is listed yet"}'
            if query.get("etag") == self.etag:
                return 200, json.dumps({"etag": self.etag}).encode()
            return 200, json.dumps(self.body()).encode()

    def _has_news(self, query: dict[str, str]) -> bool:
        return bool(self.hosts) and query.get("etag") != self.etag

    def body(self) -> dict[str, object]:
        lines = "".join(f"{host}:1\n" for host in self.hosts)
        files = [
            {"path": str(self.hostfile), "mode": 0o600, "content": lines},
            {"path": str(self.folder / "etc" / "discover.sh"), "mode": 0o755, "content": "#!/bin/sh\n"},
            {"path": str(self.folder / "job" / "hostfile"), "mode": 0o600, "content": lines},
        ]
        version_file = str(self.folder / "etc" / ".version")
        return {"etag": self.etag, "version": self.version, "versionFile": version_file, "files": files}

    def acknowledge(self, body: bytes) -> tuple[int, bytes]:
        if self.ack_status == 200:
            self.acks.append(json.loads(body))
        return self.ack_status, b"{}"

    def start(self) -> None:
        operator = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                assert url.path == "/v1/jobs/default/mnist/hosts"
                with suppress(ConnectionAbortedError):
                    self.respond(*operator.answer(dict(parse_qsl(url.query))))

            def do_POST(self) -> None:
                assert self.path == "/v1/jobs/default/mnist/hosts/ack"
                self.respond(*operator.acknowledge(self.rfile.read(int(self.headers["Content-Length"]))))

            def respond(self, code: int, content: bytes) -> None:
                if self.headers["Authorization"] != "Bearer secret":
                    code, content = 401, b"{}"
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = self.is_up = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}).start()

    def stop(self) -> None:
        assert self._server is not None
        self.is_up = False
        self._server.shutdown()
        self._server.server_close()
        with self._changed:
            self._changed.notify_all()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "ARGOSY_URL": f"http://127.0.0.1:{self.port}",
            "ARGOSY_TOKEN": "secret",
            "ARGOSY_NAMESPACE": "default",
            "ARGOSY_JOB": "mnist",
            "ARGOSY_POD_NAME": "mnist-launcher-0",
            "ARGOSY_POD_UID": "uid-1",
        }


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    operator = Operator(tmp_path)
    operator.start()
    try:
        yield operator
    finally:
        operator.stop()


@contextmanager
def sidecar(operator: Operator, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-I", str(SCRIPT), "hosts"],
        env={**operator.environment, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_once(operator: Operator, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(SCRIPT), "hosts", "--once", *options]
    return subprocess.run(
        command, env=operator.environment, capture_output=True, text=True, timeout=60, check=False
    )


def content(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def until_acknowledged(operator: Operator, etag: str) -> None:
    want = {"pod": "mnist-launcher-0", "uid": "uid-1", "etag": etag}
    eventually(lambda: operator.acks[-1:] == [want], f"{etag} is acknowledged")


def test_each_list_is_written_and_acknowledged_once(operator: Operator) -> None:
    etags = [operator.change("a", "b")]
    with sidecar(operator):
        until_acknowledged(operator, etags[0])
        assert operator.hostfile.read_text() == "a:1\nb:1\n"
        assert operator.hostfile.stat().st_mode & 0o777 == 0o600
        assert (operator.folder / "etc" / "discover.sh").stat().st_mode & 0o777 == 0o755
        assert (operator.folder / "job" / "hostfile").read_text() == "a:1\nb:1\n"
        etags.append(operator.change("a"))
        until_acknowledged(operator, etags[1])
        assert operator.hostfile.read_text() == "a:1\n"
    assert [ack["etag"] for ack in operator.acks] == etags
    assert operator.etags == ["", *etags]
    names = sorted(path.name for path in operator.hostfile.parent.iterdir())
    assert names == [".version", "discover.sh", "hostfile"]


def test_readers_see_whole_lists_only(operator: Operator) -> None:
    operator.change(*("x" for _ in range(2000)))
    with sidecar(operator):
        eventually(lambda: operator.acks, "the first list is acknowledged")
        seen, stop = set(), threading.Event()

        def read() -> None:
            while not stop.is_set():
                seen.add(operator.hostfile.read_bytes())

        reader = threading.Thread(target=read)
        reader.start()
        for host in "abcdefgh":
            until_acknowledged(operator, operator.change(*(host for _ in range(2000))))
        stop.set()
        reader.join()
    assert seen <= {f"{host}:1\n".encode() * 2000 for host in "xabcdefgh"}


def test_sidecar_starts_before_the_operator_and_survives_its_outages(operator: Operator) -> None:
    operator.stop()
    with sidecar(operator) as process:
        assert process.stderr is not None
        for hosts in (("a",), ("a", "b")):
            assert "the operator does not answer" in process.stderr.readline()
            etag = operator.change(*hosts)
            operator.start()
            until_acknowledged(operator, etag)
            operator.stop()
        assert process.poll() is None
    operator.start()
    assert operator.hostfile.read_text() == "a:1\nb:1\n"


ANSWERS = {
    "not ready: asked again": (503, b'{"message": "not synced: Pod"}'),
    "a proxy's page: asked again": (200, b"<html>"),
    "a list instead of an object: asked again": (200, b"[]"),
    "a file without a path: asked again": (200, b'{"etag": "1-0", "version": 1, "files": [{}]}'),
    "a relative path: asked again": (
        200,
        b'{"etag":"1-0","version":1,"versionFile":"x","files":[{"path":"x","mode":1,"content":""}]}',
    ),
}


@pytest.mark.parametrize("failure", ANSWERS.values(), ids=ANSWERS)
def test_answer_that_cannot_be_used(operator: Operator, failure: tuple[int, bytes]) -> None:
    operator.failures.put(failure)
    etag = operator.change("a")
    with sidecar(operator):
        until_acknowledged(operator, etag)
    assert operator.hostfile.read_text() == "a:1\n"


def test_acknowledgement_that_fails_is_repeated_and_does_not_hold_back_newer_lists(
    operator: Operator,
) -> None:
    operator.ack_status = 503
    operator.change("a")
    with sidecar(operator):
        eventually(lambda: content(operator.hostfile) == "a:1\n", "the first list is written")
        etag = operator.change("b")
        eventually(lambda: content(operator.hostfile) == "b:1\n", "the second list is written")
        operator.ack_status = 200
        until_acknowledged(operator, etag)
    assert [ack["etag"] for ack in operator.acks] == [etag]


def test_file_that_was_changed_is_written_again(operator: Operator) -> None:
    """For example by a command of the operator that was late."""
    operator.ack_status = 503  # it asks at short intervals until its acknowledgement is accepted
    operator.change("a")
    with sidecar(operator):
        eventually(lambda: content(operator.hostfile) == "a:1\n", "the list is written")
        operator.hostfile.write_text("old:1\n")
        eventually(lambda: content(operator.hostfile) == "a:1\n", "the list is written again")
        operator.hostfile.unlink()
        eventually(lambda: content(operator.hostfile) == "a:1\n", "the list is written again")


def test_newer_list_that_a_command_has_written_is_kept(operator: Operator) -> None:
    operator.change("old", version=7)
    operator.hostfile.parent.mkdir()
    (operator.hostfile.parent / ".version").write_text("8\n")
    operator.hostfile.write_text("new:1\n")
    with sidecar(operator):
        eventually(lambda: len(operator.etags) >= 2, "it asks again")
        assert (operator.hostfile.read_text(), operator.acks) == ("new:1\n", [])
        etag = operator.change("newer", version=9)
        until_acknowledged(operator, etag)
        assert operator.hostfile.read_text() == "newer:1\n"


def test_files_of_a_killed_sidecar_are_replaced(operator: Operator) -> None:
    operator.change("a")
    with sidecar(operator) as process:
        until_acknowledged(operator, operator.etag)
        left_over = operator.hostfile.with_name(f".hostfile.{process.pid}")
        left_over.write_text("half a li")
        until_acknowledged(operator, operator.change("b"))
    assert operator.hostfile.read_text() == "b:1\n"
    assert not left_over.exists()


def test_folder_that_cannot_be_written_is_reported_once_and_tried_again(operator: Operator) -> None:
    operator.hostfile.parent.write_text("not a folder")
    etag = operator.change("a")
    with sidecar(operator) as process:
        eventually(lambda: len(operator.etags) >= 2, "it asks again")
        assert operator.acks == []
        operator.hostfile.parent.unlink()
        until_acknowledged(operator, etag)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert errors.count("host files not written") == 1


def test_sidecar_ends_at_sigterm_while_it_waits(operator: Operator) -> None:
    operator.change("a")
    with sidecar(operator) as process:
        eventually(lambda: operator.etags[-1:] == [operator.etag], "it waits for another list")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_rejected_token_does_not_end_the_sidecar(operator: Operator) -> None:
    operator.change("a")
    with sidecar(operator, ARGOSY_TOKEN="other") as process:
        eventually(lambda: operator.etags, "it asks")
        assert process.stderr is not None
        assert "401" in process.stderr.readline()
        assert process.poll() is None


def test_once_writes_the_files_and_acknowledges_nothing(operator: Operator) -> None:
    operator.change("a")
    result = run_once(operator, "--deadline", "60")
    assert (result.returncode, result.stderr) == (0, "")
    assert operator.hostfile.read_text() == "a:1\n"
    assert operator.acks == []
    assert run_once(operator).returncode == 0, "it can be repeated"


def test_once_waits_until_hosts_are_listed(operator: Operator) -> None:
    command = [sys.executable, "-I", str(SCRIPT), "hosts", "--once", "--deadline", "60"]
    process = subprocess.Popen(command, env=operator.environment)
    eventually(lambda: operator.waits, "it asks")
    operator.change("a")
    assert process.wait(timeout=60) == 0
    assert operator.hostfile.read_text() == "a:1\n"


def test_once_fails_at_its_deadline(operator: Operator) -> None:
    result = run_once(operator, "--deadline", "0.4")
    assert result.returncode == 2
    assert result.stderr.endswith("argosy: not done within 0.4 s\n")


def test_once_fails_if_a_file_cannot_be_written(operator: Operator) -> None:
    operator.change("a")
    operator.hostfile.parent.write_text("not a folder")
    assert run_once(operator).returncode == 1


def test_modes_are_limited_to_permissions() -> None:
    body = {
        "etag": "1-0",
        "version": 1,
        "versionFile": "/v",
        "files": [{"path": "/f", "mode": 0o6755, "content": ""}],
    }
    hosts = read_answer(json.dumps(body).encode())
    assert hosts is not None
    assert hosts.files[0].mode == 0o755

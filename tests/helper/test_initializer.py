"""The initializer as a process, as a pod runs it, against an observer: acceptance cases 48 and 49."""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec import Struct

import argosy.helper
from argosy.helper import initializer as under_test
from argosy.helper.initializer import host_file, is_reached
from argosy.operator.endpoint_credentials import make_credentials
from tests.support.servers import free_port

SCRIPT = Path(argosy.helper.__file__).with_name("__main__.py")
Roles = dict[str, object]
RUNNING: Roles = {"phase": "Running", "running": True, "replicas": 1, "ips": ["10.0.0.7"]}
STARTING: Roles = {"phase": "Starting", "running": False, "replicas": 1}


class Reply(Struct):
    """The observer's response to one request."""

    body: object
    code: int = 200
    phase: str = "Starting"
    tag: str = ""


@contextmanager
def observer(
    respond: Callable[[int], Reply], port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Run an observer; yield its port and the requests that it gets. `respond` gets the request's number."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.path} {self.headers.get('Authorization', '')}")
            reply = respond(len(requests))
            content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.code)
            self.send_header("Ares-Job-Phase", reply.phase)
            if reply.tag:
                self.send_header("ETag", reply.tag)
            self.send_header("Content-Length", str(len(content)))
            with suppress(ConnectionError):  # the client has closed the connection
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port, requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def initializer(*flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    with started(*flags, **environ) as process:
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def started(*flags: str, **environ: str) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], "ARES_TOKEN": "t", **environ}
    command = [sys.executable, "-I", str(SCRIPT), *flags]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def cache_flags(port: int) -> tuple[str, ...]:
    return ("cache", "--key", "ns.job", "--cacheURI", f"http://127.0.0.1:{port}", "--interval", "20ms")


def cache(port: int, *flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return initializer(*cache_flags(port), *flags, **environ)


def test_48_initializer_waits_until_both_roles_are_running() -> None:
    """Initializer on roles a, b: a Running, b not -> goes on waiting; both -> exit 0."""
    with observer(lambda n: Reply({"a": RUNNING, "b": STARTING if n < 3 else RUNNING})) as (port, requests):
        done = cache(port, "--roles", "a,b")
    assert done.returncode == 0, done.stderr
    assert len(requests) == 3
    assert requests[0] == "/cache/keys/ns.job Bearer t"
    assert "waiting for role b to be Running; it is Starting" in done.stdout


def test_48_initializer_fails_after_its_timeout() -> None:
    with observer(lambda n: Reply({"a": STARTING})) as (port, _):
        done = cache(port, "--roles", "a", "--timeout", "200ms")
    assert (done.returncode, "not released within 0.2 s" in done.stderr) == (1, True)


def test_48_unavailable_node_port_address_next_one_is_used() -> None:
    """observer down on the first nodePort address -> next one used."""
    with observer(lambda n: Reply({"a": RUNNING})) as (port, _):
        flags = ("cache", "--key", "ns.job", "--cacheURI", f"nodePort://127.0.0.1:{port}", "--roles", "a")
        done = initializer(*flags, LOCAL_IP="127.0.0.99")
    assert done.returncode == 0, done.stderr


def test_48_node_port_without_any_address_fails() -> None:
    """empty nodePort list without LOCAL_IP -> error."""
    done = initializer("cache", "--key", "ns.job", "--cacheURI", "nodePort://30037", "--roles", "a")
    assert (done.returncode, "must have an address, as LOCAL_IP is not set" in done.stderr) == (1, True)


class WaitCase(Struct):
    roles: Roles
    want_code: int
    phase: str = "Running"
    job: str = "Starting"
    want_error: str = ""


WAIT_CASES = {
    "49. role already Succeeded: released": WaitCase({"a": {"phase": "Succeeded"}}, 0),
    "49. phase Succeeded, role Succeeded: released": WaitCase({"a": {"phase": "Succeeded"}}, 0, "Succeeded"),
    "job Failed: fails": WaitCase({"a": STARTING}, 1, job="Failed", want_error="the job is Failed"),
    "unknown role: fails": WaitCase({"b": RUNNING}, 1, want_error="unknown role a"),
    "phase Failed, role Succeeded: fails": WaitCase(
        {"a": {"phase": "Succeeded"}}, 1, "Failed", want_error="has succeeded and will not fail"
    ),
}


@pytest.mark.parametrize("case", WAIT_CASES.values(), ids=WAIT_CASES.keys())
def test_49_wait_ends(case: WaitCase) -> None:
    with observer(lambda n: Reply(case.roles, phase=case.job)) as (port, _):
        done = cache(port, "--roles", "a", "--phase", case.phase)
    assert done.returncode == case.want_code, done.stderr
    assert case.want_error in done.stderr


def test_49_phase_succeeded_role_running_keeps_waiting() -> None:
    with observer(lambda n: Reply({"a": RUNNING if n < 3 else {"phase": "Succeeded"}})) as (port, requests):
        assert cache(port, "--roles", "a", "--phase", "Succeeded").returncode == 0
    assert len(requests) == 3


def test_more_errors_in_a_row_than_max_retries_fail() -> None:
    bad = [Reply(b"x"), Reply(b"", 500), Reply({"error": "no"}, 401), Reply([1])]
    with observer(lambda n: bad[n - 1] if n <= 4 else Reply({"a": RUNNING})) as (port, requests):
        assert cache(port, "--roles", "a", "--max-retries", "4").returncode == 0
    assert len(requests) == 5
    with observer(lambda n: Reply(b"x")) as (port, requests):
        done = cache(port, "--roles", "a", "--max-retries", "1")
    assert (done.returncode, len(requests)) == (1, 2)


def test_host_file_has_all_addresses_of_the_roles(tmp_path: Path) -> None:
    """32. `<launcher IP> slots=1`, `<worker IP> slots=1`."""
    one_address = {"phase": "Running", "replicas": 2, "ips": ["10.0.0.1"]}
    all_addresses = {"phase": "Running", "replicas": 2, "ips": ["10.0.0.1", "10.0.0.2"]}
    files = (tmp_path / "one" / "hostfile", tmp_path / "two" / "hostfile")
    with observer(lambda n: Reply({"worker": one_address if n < 3 else all_addresses})) as (port, requests):
        done = cache(
            port,
            *("--roles", "worker", "--write-mpi-hostfile-to", ",".join(map(str, files))),
            *("--mpi-host-replicas", "2", "--mpi-implementation", "ompi"),
            POD_IP="10.0.0.9",
        )
    assert done.returncode == 0, done.stderr
    assert len(requests) == 3, "released only when all addresses are known"
    for file in files:
        assert file.read_text() == "10.0.0.9 slots=2\n10.0.0.1 slots=2\n10.0.0.2 slots=2\n"
        assert file.stat().st_mode & 0o777 == 0o644


def test_no_roles_no_request_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "hostfile"
    done = cache(1, "--write-mpi-hostfile-to", str(file), POD_IP="10.0.0.9")
    assert (done.returncode, file.read_text()) == (0, "10.0.0.9\n")
    assert cache(1).returncode == 0
    assert cache(1, "--write-mpi-hostfile-to", str(file)).returncode == 1, "no host to write"


def test_host_file_formats() -> None:
    assert host_file(["a", "b"], 2, "mpich") == "a:2\nb:2\n"
    assert host_file(["a", "b"], 2, "") == "a\na\nb\nb\n"


def test_mpi_command_writes_the_host_file_and_releases_a_waiting_initializer(tmp_path: Path) -> None:
    file, hack = tmp_path / "etc" / "hostfile", tmp_path / "ares-init"
    flags = ("--write-mpi-hostfile-to", str(file), "--mpi-implementation", "ompi", "--hack-file", str(hack))
    assert initializer("mpi", "--ips", "a,b", *flags).returncode == 0
    assert (file.read_text(), hack.exists()) == ("a slots=1\nb slots=1\n", True)
    with observer(lambda n: Reply(b"x")) as (port, _):
        assert cache(port, "--roles", "a", "--hack-file", str(hack)).returncode == 0


@pytest.mark.parametrize("flags", [("cache",), ("cache", "--key", "a.b"), ("mpi",)])
def test_missing_flags_exit_code_2(flags: tuple[str, ...]) -> None:
    assert initializer(*flags).returncode == 2


def test_later_phase_counts_as_reached_except_succeeded_and_failed() -> None:
    assert is_reached("Running", "Starting")
    assert is_reached("Succeeded", "Running")
    assert not is_reached("Starting", "Running")
    assert not is_reached("Failed", "Running")
    assert not is_reached("Running", "Failed")
    assert not is_reached("Running", "Succeeded")


def test_observer_that_starts_late_is_retried() -> None:
    port = free_port()
    with started(*cache_flags(port), "--roles", "a") as process:
        assert process.stderr is not None
        assert "request to the observer failed" in process.stderr.readline()
        with observer(lambda n: Reply({"a": RUNNING}), port):
            process.communicate(timeout=60)
    assert process.returncode == 0


def test_response_that_takes_too_long_is_requested_again() -> None:
    second_request = threading.Event()

    def slow(number: int) -> Reply:
        second_request.wait(30) if number == 1 else second_request.set()
        return Reply({"a": RUNNING})

    with observer(slow) as (port, requests):
        done = cache(port, "--roles", "a", "--read-timeout", "100ms")
    assert (done.returncode, len(requests)) == (0, 2), done.stderr
    assert "timed out" in done.stderr


def test_rejected_token_fails_with_the_reason() -> None:
    with observer(lambda n: Reply({"code": 230401, "error": "the token is not of such a job"}, 401)) as (
        port,
        requests,
    ):
        done = cache(port, "--roles", "a", "--max-retries", "2")
    assert (done.returncode, len(requests)) == (1, 3)
    assert "3 requests to the observer in a row failed: 401 the token is not of such a job" in done.stderr


INVALID_BODIES: dict[str, object] = {
    "empty": b"",
    "truncated": b'{"a": {"phase": "Runn',
    "HTML of a proxy": b"<html>502 Bad Gateway</html>",
    "not UTF-8": b"\xff\xfe\x00",
    "deeply nested": b"[" * 200_000,
    "very long number": b"9" * 10_000,
    "null": None,
    "a list": [1],
    "no roles": {},
    "phase is a number": {"a": {"phase": 3}},
    "addresses are a text": {"a": {"phase": "Starting", "ips": "x", "replicas": "many"}},
}


@pytest.mark.parametrize("code", [200, 500])
def test_invalid_responses_are_retried(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = list(INVALID_BODIES.values())

    def respond(number: int) -> Reply:
        return Reply(bodies[number - 1], code) if number <= len(bodies) else Reply({"a": RUNNING})

    with observer(respond) as (port, requests):
        retries = ("--interval", "0", "--max-retries", "99")
        assert under_test.main([*cache_flags(port), "--roles", "a", *retries]) == 0, capsys.readouterr().err
    assert len(requests) == len(bodies) + 1


def test_role_that_stays_failed_fails_the_wait_although_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(under_test, "FAILED_ROLE_GRACE_SECONDS", 0.3)
    roles = {"a": {"phase": "Failed"}, "b": RUNNING}
    with observer(lambda n: Reply(roles, tag='"1"') if n == 1 else Reply(b"", 304, tag='"1"')) as (
        port,
        requests,
    ):
        assert under_test.main([*cache_flags(port), "--roles", "a,b", "--timeout", "20s"]) == 1
    assert "role a has been Failed for 0.3 s" in capsys.readouterr().err
    assert requests[1].startswith("/cache/keys/ns.job?wait=1 "), (
        "not longer than the grace of the failed role"
    )


def test_failed_role_that_is_restarted_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "FAILED_ROLE_GRACE_SECONDS", 0.2)
    phases = ["Failed", "Starting"] * 8
    with observer(lambda n: Reply({"a": {"phase": phases[n]} if n < len(phases) else RUNNING})) as (port, _):
        assert under_test.main([*cache_flags(port), "--interval", "60ms", "--roles", "a"]) == 0


def test_observer_without_long_polls_is_asked_at_the_interval() -> None:
    with observer(lambda n: Reply({"a": STARTING}, tag='"1"')) as (port, requests):
        done = cache(port, "--roles", "a", "--timeout", "600ms", "--interval", "100ms")
    assert (done.returncode, len(requests) <= 14) == (1, True), len(requests)


def test_early_response_of_a_stopping_observer_is_followed_by_a_request_at_once() -> None:
    replies = [
        Reply({"a": STARTING}, tag='"1"'),
        Reply(b"", 304, tag='"1"'),
        Reply({"a": RUNNING}, tag='"2"'),
    ]
    with observer(lambda n: replies[n - 1]) as (port, _):
        assert cache(port, "--roles", "a", "--interval", "1h").returncode == 0


def test_timeout_ends_a_long_poll() -> None:
    over = threading.Event()

    def delay(number: int) -> Reply:
        if number > 1:
            over.wait(90)
        return Reply({"a": STARTING}, tag='"1"')

    with observer(delay) as (port, requests):
        done = cache(port, "--roles", "a", "--timeout", "500ms")
        over.set()
    assert done.returncode == 1
    assert "not released within 0.5 s" in done.stderr
    assert "?wait=1 " in requests[1]


def test_host_file_that_cannot_be_written_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with observer(lambda n: Reply({"a": RUNNING})) as (port, _):
        done = cache(port, "--roles", "a", "--write-mpi-hostfile-to", str(tmp_path / "file" / "hosts"))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr


def test_sigterm_ends_the_initializer() -> None:
    """The kernel does not deliver SIGTERM to the first process of a container unless it has a handler."""
    with (
        observer(lambda n: Reply({"a": STARTING})) as (port, _),
        started(*cache_flags(port), "--roles", "a") as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


def test_certificate_of_an_address_is_verified_by_the_authority_alone(tmp_path: Path) -> None:
    """Certificates do not contain the addresses of nodes and Services."""
    ours, others = (make_credentials(["ares-observer"], datetime.now(UTC)) for _ in range(2))
    pem = tmp_path / "pem"
    pem.write_text(ours.certificate_key + ours.certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pem)
    with observer(lambda n: Reply({"a": RUNNING}), tls=tls) as (port, _):
        for uri in (f"https://127.0.0.1:{port}", f"nodePort://127.0.0.1:{port}"):
            flags = ("cache", "--key", "ns.job", "--cacheURI", uri, "--roles", "a", "--max-retries", "0")
            assert initializer(*flags, ARGOSY_CA=ours.ca).returncode == 0
            assert initializer(*flags, ARGOSY_CA=others.ca).returncode == 1

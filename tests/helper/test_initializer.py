"""Acceptance cases 48 and 49: the initializer as a pod runs it, as a process, against an observer."""

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
UP: Roles = {"phase": "Running", "running": True, "replicas": 1, "ips": ["10.0.0.7"]}
COMING: Roles = {"phase": "Starting", "running": False, "replicas": 1}


class Told(Struct):
    """What the observer answers to one question."""

    body: object
    code: int = 200
    phase: str = "Starting"
    tag: str = ""


@contextmanager
def observer(
    answer: Callable[[int], Told], port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Its port, and what it was asked with; `answer` gets the number of the question."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization', '')}")
            told = answer(len(asked))
            content = told.body if isinstance(told.body, bytes) else json.dumps(told.body).encode()
            self.send_response(told.code)
            self.send_header("Ares-Job-Phase", told.phase)
            if told.tag:
                self.send_header("ETag", told.tag)
            self.send_header("Content-Length", str(len(content)))
            with suppress(ConnectionError):  # who asked has gone
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
        yield server.server_port, asked
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


def asking(port: int) -> tuple[str, ...]:
    where = ("--key", "ns.job", "--cacheURI", f"http://127.0.0.1:{port}")
    return ("cache", *where, "--interval", "20ms")


def cache(port: int, *flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return initializer(*asking(port), *flags, **environ)


def test_48_it_goes_on_waiting_until_both_run() -> None:
    """Initializer on roles a, b: a Running, b not -> goes on waiting; both -> exit 0."""
    with observer(lambda n: Told({"a": UP, "b": COMING if n < 3 else UP})) as (port, asked):
        done = cache(port, "--roles", "a,b")
    assert done.returncode == 0, done.stderr
    assert len(asked) == 3
    assert asked[0] == "/cache/keys/ns.job Bearer t"
    assert "waits for b to be Running; it is Starting" in done.stdout


def test_48_a_timeout_that_passed_is_a_failure() -> None:
    with observer(lambda n: Told({"a": COMING})) as (port, _):
        done = cache(port, "--roles", "a", "--timeout", "200ms")
    assert (done.returncode, "not released within 0.2 s" in done.stderr) == (1, True)


def test_48_the_next_address_of_a_node_port_is_used() -> None:
    """observer down on the first nodePort address -> next one used."""
    with observer(lambda n: Told({"a": UP})) as (port, _):
        flags = ("cache", "--key", "ns.job", "--cacheURI", f"nodePort://127.0.0.1:{port}", "--roles", "a")
        done = initializer(*flags, LOCAL_IP="127.0.0.99")
    assert done.returncode == 0, done.stderr


def test_48_no_address_at_all_is_an_error() -> None:
    """empty nodePort list without LOCAL_IP -> error."""
    done = initializer("cache", "--key", "ns.job", "--cacheURI", "nodePort://30037", "--roles", "a")
    assert (done.returncode, "there is no address" in done.stderr) == (1, True)


class Ending(Struct):
    roles: Roles
    want: int
    phase: str = "Running"
    job: str = "Starting"
    says: str = ""


ENDINGS = {
    "49. Dependency already Succeeded -> released": Ending({"a": {"phase": "Succeeded"}}, 0),
    "49. rolePhase Succeeded -> released on Succeeded": Ending({"a": {"phase": "Succeeded"}}, 0, "Succeeded"),
    "the job is finished": Ending({"a": COMING}, 1, job="Failed", says="the job is Failed"),
    "a listed role is unknown": Ending({"b": UP}, 1, says="there is no role a"),
    "Failed is wanted and the role Succeeded": Ending(
        {"a": {"phase": "Succeeded"}}, 1, "Failed", says="has succeeded and will not fail"
    ),
}


@pytest.mark.parametrize("case", ENDINGS.values(), ids=ENDINGS.keys())
def test_49_how_a_wait_ends(case: Ending) -> None:
    with observer(lambda n: Told(case.roles, phase=case.job)) as (port, _):
        done = cache(port, "--roles", "a", "--phase", case.phase)
    assert done.returncode == case.want, done.stderr
    assert case.says in done.stderr


def test_49_held_while_running_where_succeeded_is_wanted() -> None:
    with observer(lambda n: Told({"a": UP if n < 3 else {"phase": "Succeeded"}})) as (port, asked):
        assert cache(port, "--roles", "a", "--phase", "Succeeded").returncode == 0
    assert len(asked) == 3


def test_errors_in_a_row_are_counted_and_forgiven() -> None:
    """Any body is borne: short ones, none, no JSON."""
    bad = [Told(b"x"), Told(b"", 500), Told({"error": "no"}, 401), Told([1])]
    with observer(lambda n: bad[n - 1] if n <= 4 else Told({"a": UP})) as (port, asked):
        assert cache(port, "--roles", "a", "--max-retries", "4").returncode == 0
    assert len(asked) == 5
    with observer(lambda n: Told(b"x")) as (port, asked):
        done = cache(port, "--roles", "a", "--max-retries", "1")
    assert (done.returncode, len(asked)) == (1, 2)


def test_the_host_file_has_all_addresses_of_the_roles(tmp_path: Path) -> None:
    """32. `<launcher IP> slots=1`, `<worker IP> slots=1`."""
    few = {"phase": "Running", "replicas": 2, "ips": ["10.0.0.1"]}
    all_of_them = {"phase": "Running", "replicas": 2, "ips": ["10.0.0.1", "10.0.0.2"]}
    files = (tmp_path / "one" / "hostfile", tmp_path / "two" / "hostfile")
    with observer(lambda n: Told({"worker": few if n < 3 else all_of_them})) as (port, asked):
        done = cache(
            port,
            *("--roles", "worker", "--write-mpi-hostfile-to", ",".join(map(str, files))),
            *("--mpi-host-replicas", "2", "--mpi-implementation", "ompi"),
            POD_IP="10.0.0.9",
        )
    assert done.returncode == 0, done.stderr
    assert len(asked) == 3, "released only when all addresses are known"
    for file in files:
        assert file.read_text() == "10.0.0.9 slots=2\n10.0.0.1 slots=2\n10.0.0.2 slots=2\n"
        assert file.stat().st_mode & 0o777 == 0o644


def test_without_a_role_nobody_is_asked(tmp_path: Path) -> None:
    """--roles: none = no waiting."""
    file = tmp_path / "hostfile"
    done = cache(1, "--write-mpi-hostfile-to", str(file), POD_IP="10.0.0.9")
    assert (done.returncode, file.read_text()) == (0, "10.0.0.9\n")
    assert cache(1).returncode == 0
    assert cache(1, "--write-mpi-hostfile-to", str(file)).returncode == 1, "there is no host"


def test_forms_of_host_files() -> None:
    assert host_file(["a", "b"], 2, "mpich") == "a:2\nb:2\n"
    assert host_file(["a", "b"], 2, "") == "a\na\nb\nb\n"


def test_by_hand(tmp_path: Path) -> None:
    file, hack = tmp_path / "etc" / "hostfile", tmp_path / "ares-init"
    flags = ("--write-mpi-hostfile-to", str(file), "--mpi-implementation", "ompi", "--hack-file", str(hack))
    assert initializer("mpi", "--ips", "a,b", *flags).returncode == 0
    assert (file.read_text(), hack.exists()) == ("a slots=1\nb slots=1\n", True)
    with observer(lambda n: Told(b"x")) as (port, _):
        assert cache(port, "--roles", "a", "--hack-file", str(hack)).returncode == 0


@pytest.mark.parametrize("flags", [("cache",), ("cache", "--key", "a.b"), ("mpi",)])
def test_wrong_flags(flags: tuple[str, ...]) -> None:
    assert initializer(*flags).returncode == 2


def test_a_later_phase_is_as_good() -> None:
    assert is_reached("Running", "Starting")
    assert is_reached("Succeeded", "Running")
    assert not is_reached("Starting", "Running")
    assert not is_reached("Failed", "Running")
    assert not is_reached("Running", "Failed")
    assert not is_reached("Running", "Succeeded")


def test_an_observer_that_comes_late_is_waited_for() -> None:
    port = free_port()
    with started(*asking(port), "--roles", "a") as process:
        assert process.stderr is not None
        assert "the observer does not answer" in process.stderr.readline()
        with observer(lambda n: Told({"a": UP}), port):
            process.communicate(timeout=60)
    assert process.returncode == 0


def test_an_answer_that_takes_too_long_is_asked_for_again() -> None:
    asked_again = threading.Event()

    def slow(number: int) -> Told:
        asked_again.wait(30) if number == 1 else asked_again.set()
        return Told({"a": UP})

    with observer(slow) as (port, asked):
        done = cache(port, "--roles", "a", "--read-timeout", "100ms")
    assert (done.returncode, len(asked)) == (0, 2), done.stderr
    assert "timed out" in done.stderr


def test_a_wrong_token_ends_the_wait_with_the_reason() -> None:
    with observer(lambda n: Told({"code": 230401, "error": "the token is not of such a job"}, 401)) as (
        port,
        asked,
    ):
        done = cache(port, "--roles", "a", "--max-retries", "2")
    assert (done.returncode, len(asked)) == (1, 3)
    assert "did not answer 3 times in a row: 401 the token is not of such a job" in done.stderr


GARBAGE: dict[str, object] = {
    "nothing": b"",
    "half an answer": b'{"a": {"phase": "Runn',
    "a page of a proxy": b"<html>502 Bad Gateway</html>",
    "bytes that are no text": b"\xff\xfe\x00",
    "nested without end": b"[" * 200_000,
    "a number without end": b"9" * 10_000,
    "null": None,
    "a list": [1],
    "no roles": {},
    "phases that are none": {"a": {"phase": 3}},
    "addresses that are none": {"a": {"phase": "Starting", "ips": "x", "replicas": "many"}},
}


@pytest.mark.parametrize("code", [200, 500])
def test_any_body_is_borne(code: int, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = list(GARBAGE.values())

    def answer(number: int) -> Told:
        return Told(bodies[number - 1], code) if number <= len(bodies) else Told({"a": UP})

    with observer(answer) as (port, asked):
        patient = ("--interval", "0", "--max-retries", "99")
        assert under_test.main([*asking(port), "--roles", "a", *patient]) == 0, capsys.readouterr().err
    assert len(asked) == len(bodies) + 1


def test_a_role_that_stays_failed_ends_the_wait_though_another_runs_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """a depended role has been Failed for 60 s while another phase is wanted"""
    monkeypatch.setattr(under_test, "FAILED_ROLE_GRACE_SECONDS", 0.3)
    roles = {"a": {"phase": "Failed"}, "b": UP}
    with observer(lambda n: Told(roles, tag='"1"') if n == 1 else Told(b"", 304, tag='"1"')) as (port, asked):
        assert under_test.main([*asking(port), "--roles", "a,b", "--timeout", "20s"]) == 1
    assert "role a has been Failed for 0.3 s" in capsys.readouterr().err
    assert asked[1].startswith("/cache/keys/ns.job?wait=1 "), "no longer than there is patience"


def test_a_role_that_comes_back_from_its_failure_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "FAILED_ROLE_GRACE_SECONDS", 0.2)
    phases = ["Failed", "Starting"] * 8
    with observer(lambda n: Told({"a": {"phase": phases[n]} if n < len(phases) else UP})) as (port, _):
        assert under_test.main([*asking(port), "--interval", "60ms", "--roles", "a"]) == 0


def test_an_observer_that_does_not_hold_questions_back_is_not_pressed() -> None:
    with observer(lambda n: Told({"a": COMING}, tag='"1"')) as (port, asked):
        done = cache(port, "--roles", "a", "--timeout", "600ms", "--interval", "100ms")
    assert (done.returncode, len(asked) <= 14) == (1, True), len(asked)


def test_after_an_observer_that_lets_go_the_next_is_asked_at_once() -> None:
    answers = [Told({"a": COMING}, tag='"1"'), Told(b"", 304, tag='"1"'), Told({"a": UP}, tag='"2"')]
    with observer(lambda n: answers[n - 1]) as (port, _):
        assert cache(port, "--roles", "a", "--interval", "1h").returncode == 0


def test_the_timeout_ends_a_question_that_is_held_back() -> None:
    over = threading.Event()

    def holding(number: int) -> Told:
        if number > 1:
            over.wait(90)
        return Told({"a": COMING}, tag='"1"')

    with observer(holding) as (port, asked):
        done = cache(port, "--roles", "a", "--timeout", "500ms")
        over.set()
    assert done.returncode == 1
    assert "not released within 0.5 s" in done.stderr
    assert "?wait=1 " in asked[1]


def test_a_host_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with observer(lambda n: Told({"a": UP})) as (port, _):
        done = cache(port, "--roles", "a", "--write-mpi-hostfile-to", str(tmp_path / "file" / "hosts"))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr


def test_it_ends_when_it_is_told_to() -> None:
    """The kernel hides SIGTERM from the first process of a container, unless that handles it."""
    with (
        observer(lambda n: Told({"a": COMING})) as (port, _),
        started(*asking(port), "--roles", "a") as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


def test_by_address_the_authority_of_the_pod_is_enough(tmp_path: Path) -> None:
    """A node's address, or a Service's, stands in no certificate; who it is, the authority says."""
    ours, others = (make_credentials(["ares-observer"], datetime.now(UTC)) for _ in range(2))
    pem = tmp_path / "pem"
    pem.write_text(ours.certificate_key + ours.certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pem)
    with observer(lambda n: Told({"a": UP}), tls=tls) as (port, _):
        for uri in (f"https://127.0.0.1:{port}", f"nodePort://127.0.0.1:{port}"):
            flags = ("cache", "--key", "ns.job", "--cacheURI", uri, "--roles", "a", "--max-retries", "0")
            assert initializer(*flags, ARGOSY_CA=ours.ca).returncode == 0
            assert initializer(*flags, ARGOSY_CA=others.ca).returncode == 1

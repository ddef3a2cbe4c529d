"""Acceptance cases 48 and 49: the initializer as a pod runs it, as a process, against an observer."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec import Struct

import argosy.helper
from argosy.helper.initializer import host_file, reached

SCRIPT = Path(argosy.helper.__file__).with_name("__main__.py")
Roles = dict[str, object]
UP: Roles = {"phase": "Running", "running": True, "replicas": 1, "ips": ["10.0.0.7"]}
COMING: Roles = {"phase": "Starting", "running": False, "replicas": 1}


class Told(Struct):
    """What the observer answers to one question."""

    body: object
    code: int = 200
    phase: str = "Starting"


@contextmanager
def observer(answer: Callable[[int], Told]) -> Iterator[tuple[int, list[str]]]:
    """Its port, and what it was asked with; `answer` gets the number of the question."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization', '')}")
            told = answer(len(asked))
            content = told.body if isinstance(told.body, bytes) else json.dumps(told.body).encode()
            self.send_response(told.code)
            self.send_header("Ares-Job-Phase", told.phase)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def initializer(*flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "ARES_TOKEN": "t", **environ}
    command = [sys.executable, "-I", str(SCRIPT), *flags]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def cache(port: int, *flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    where = ("--key", "ns.job", "--cacheURI", f"http://127.0.0.1:{port}")
    return initializer("cache", *where, "--interval", "20ms", *flags, **environ)


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
    assert reached("Running", "Starting")
    assert reached("Succeeded", "Running")
    assert not reached("Starting", "Running")
    assert not reached("Failed", "Running")
    assert not reached("Running", "Failed")
    assert not reached("Running", "Succeeded")

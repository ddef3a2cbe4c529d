"""The initializer of AresJobs: `cache` waits for other roles and writes host files, `mpi` writes one by hand.

It speaks the original's protocol with the original's flags, and asks so that a change is answered at once
where the observer can do that. Exit codes: 0 released, 1 failed, 2 wrong flags.
"""

import argparse
import json
import math
import os
import random
import re
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from argosy.helper.files import replace_file

COMMANDS = ("cache", "mpi")
MAX_PAUSE_SECONDS = 60.0
FAILED_ROLE_GRACE_SECONDS = 60.0
"""Seconds for which pods wait for a role that is Failed. This and the functions `is_reached` and
`unreachable_reason` are copies of rules in `argosy.workload.dependencies`."""
LONG_POLL_SECONDS = 30.0
"""Seconds that the observer may hold a question back."""
MAX_RESPONSE_BYTES = 64 * 1024 * 1024

_ORDER = ("Pending", "Starting", "Running", "Succeeded")
_FINISHED = ("Succeeded", "Failed")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")


class UnreachableError(Exception):
    """Waiting longer changes nothing."""


def main(arguments: Sequence[str]) -> int:
    try:
        flags = _parser().parse_args(arguments)
    except SystemExit as stop:
        return 2 if stop.code else 0
    try:
        return _release_by_hand(flags) if flags.command == "mpi" else _Waiter(flags, os.environ).run()
    except (UnreachableError, OSError) as error:
        print(f"initializer: {error}", file=sys.stderr, flush=True)
        return 1


_JobState = tuple[str, dict[str, object]]
"""The job's phase, and its roles."""
_RETRYABLE = (OSError, HTTPException, ValueError, RecursionError)
"""What asking may end with, whatever is answered: bodies may hold anything."""


class _Waiter:
    def __init__(self, flags: argparse.Namespace, environ: Mapping[str, str]) -> None:
        self.flags = flags
        self.environ = environ
        self.roles = list(dict.fromkeys(name for name in flags.roles.split(",") if name))
        self.files = [path for path in flags.write_mpi_hostfile_to.split(",") if path]
        self.addresses = _addresses(flags.cacheURI, environ)
        self.deadline = time.monotonic() + flags.timeout if flags.timeout else None
        self.etag = ""
        self.long_poll_seconds = 0.0
        """Seconds for which the observer was asked to hold the last question back."""
        self.changed = False
        self.early_responses = 0
        """Answers in a row that came before there was news or the time was over."""
        self.last_response: _JobState = ("", {})
        self.last_message = ""
        self.failed_since: dict[str, float] = {}

    def run(self) -> int:
        """Wait until released; raise if that cannot happen any more or takes too long."""
        if not self.roles:
            self._write({})
            return 0
        errors = 0
        while True:
            asked = time.monotonic()
            try:
                self.last_response = self._query()
            except _RETRYABLE as error:
                errors += 1
                self._report_error(error, errors)
                pause = min(self.flags.interval * 2.0 ** min(errors - 1, 20), MAX_PAUSE_SECONDS)
            else:
                errors = 0
                if self._is_released(*self.last_response):
                    return 0
                pause = self._pause(time.monotonic() - asked)
            if Path(self.flags.hack_file).exists():
                print("initializer: released by hand", flush=True)
                return 0
            left = self._left(pause)
            if left <= 0 and self.deadline is not None:
                raise UnreachableError(f"not released within {self.flags.timeout:g} s; {self.last_message}")
            time.sleep(max(0.0, min(pause, left)))

    def _pause(self, took: float) -> float:
        """Seconds until the next question: none to an observer that holds it back until there is news. One
        that is about to go answers early, and the next may be asked at once; one that always does must not be
        pressed."""
        waited = self.changed or took >= self.long_poll_seconds / 2
        self.early_responses = 0 if waited else self.early_responses + 1
        if self.etag and self.early_responses <= 1:
            return 0.0
        return float(self.flags.interval * (0.5 + random.random()))  # noqa: S311 - spreads questions

    def _left(self, seconds: float) -> float:
        return seconds if self.deadline is None else self.deadline - time.monotonic()

    def _report_error(self, error: BaseException, errors: int) -> None:
        said = str(error) or type(error).__name__
        if errors > self.flags.max_retries:
            raise UnreachableError(f"the observer did not answer {errors} times in a row: {said}")
        self.last_message = f"the observer does not answer ({said})"
        print(f"initializer: {self.last_message}", file=sys.stderr, flush=True)

    def _query(self) -> _JobState:
        """The first address that answers is asked."""
        problem: Exception = OSError("there is no address")
        for scheme, host, port in self.addresses:
            try:
                return self._query_at(scheme, host, port)
            except _RETRYABLE as error:
                problem = error
        raise problem

    def _query_at(self, scheme: str, host: str, port: int | None) -> _JobState:
        """Return the state of the job; the last one if it has not changed."""
        headers, query = self._request_parts()
        connection = self._connection(scheme, host, port)
        try:
            connection.connect()
            if connection.sock is not None:
                patience = self.flags.read_timeout + self.long_poll_seconds
                connection.sock.settimeout(max(0.1, min(patience, self._left(patience))))
            connection.request("GET", f"/cache/keys/{self.flags.key}{query}", headers=headers)
            response = connection.getresponse()
            body = response.read(MAX_RESPONSE_BYTES)
            self.changed = response.status != 304
            if response.status == 304:
                return self.last_response
            if response.status != 200:
                raise ValueError(f"{response.status} {_reason(body)}")
            roles = json.loads(body)
            if not isinstance(roles, dict):
                raise HTTPException("it answered something that is not the roles of a job")
            tag = response.getheader("ETag") or ""
            self.changed, self.etag = tag != self.etag, tag
            return response.getheader("Ares-Job-Phase") or "", roles
        finally:
            connection.close()

    def _request_parts(self) -> tuple[dict[str, str], str]:
        """Headers and query. Not held back for longer than there is time, or patience with a role."""
        headers = {}
        if token := self.environ.get("ARES_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        self.long_poll_seconds = 0.0
        if not self.etag:
            return headers, ""
        patience = (
            min(self.failed_since.values(), default=time.monotonic())
            + FAILED_ROLE_GRACE_SECONDS
            - time.monotonic()
        )
        self.long_poll_seconds = max(
            1.0, math.ceil(min(LONG_POLL_SECONDS, patience, self._left(LONG_POLL_SECONDS)))
        )
        return {**headers, "If-None-Match": self.etag}, f"?wait={self.long_poll_seconds:.0f}"

    def _connection(self, scheme: str, host: str, port: int | None) -> HTTPConnection:
        patience = max(0.1, min(self.flags.dial_timeout, self._left(self.flags.dial_timeout)))
        if scheme != "https":
            return HTTPConnection(host, port, timeout=patience)
        authority = self.environ.get("ARGOSY_CA")
        tls = ssl.create_default_context(cadata=authority or None)
        if authority and _is_address(host):  # it signs for the endpoint alone, and knows only names of it
            tls.check_hostname = False
        return HTTPSConnection(host, port, timeout=patience, context=tls)

    def _is_released(self, job: str, roles: dict[str, object]) -> bool:
        if job in _FINISHED:
            raise UnreachableError(f"the job is {job}")
        waits = (
            [said for name in self.roles if (said := self._wait_reason(name, roles.get(name)))]
            if roles
            else []
        )
        if not roles:  # a job that is not judged yet, or by a later operator
            waits = ["waits for the roles of the job to be reported"]
        if waits:
            if waits[0] != self.last_message:
                print(f"initializer: {waits[0]}", flush=True)
            self.last_message = waits[0]
            return False
        self._write(roles)
        print("initializer: released", flush=True)
        return True

    def _write(self, roles: Mapping[str, object]) -> None:
        if self.files:
            hosts = [ip for name in self.roles for ip in _ips(roles.get(name))]
            write_host_files(self.flags, self.files, [*self._own_ip(), *hosts])

    def _wait_reason(self, name: str, role: object) -> str:
        """For what this role is waited for; empty if for nothing."""
        if not isinstance(role, dict):
            raise UnreachableError(f"there is no role {name}")
        phase, wanted = str(role.get("phase")), self.flags.phase
        said = f"waits for {name} to be {wanted}; it is {phase}"
        if not is_reached(phase, wanted):
            self._check_reachable(name, phase, wanted)
            return said
        self.failed_since.pop(name, None)
        there, replicas = len(_ips(role)), role.get("replicas")
        if self.files and isinstance(replicas, int) and there < replicas:
            return f"waits for the addresses of {name}; {there} of {replicas} are known"
        return ""

    def _check_reachable(self, name: str, phase: str, wanted: str) -> None:
        now = time.monotonic()
        if phase == "Failed":
            failed_seconds = now - self.failed_since.setdefault(name, now)
        else:
            self.failed_since.pop(name, None)
            failed_seconds = 0.0
        if reason := unreachable_reason(name, phase, wanted, failed_seconds):
            raise UnreachableError(reason)

    def _own_ip(self) -> list[str]:
        if not self.flags.include_self:
            return []
        own = self.environ.get("POD_IP") or self.environ.get("LOCAL_IP")
        return [own] if own else []


def is_reached(phase: str, wanted: str) -> bool:
    """Return True if a role in `phase` meets a dependency on `wanted`.

    A later phase is as good as the wanted one, but Succeeded and Failed are met by themselves only.
    """
    if wanted in _FINISHED or phase not in _ORDER:
        return phase == wanted
    return wanted in _ORDER and _ORDER.index(phase) >= _ORDER.index(wanted)


def unreachable_reason(role: str, phase: str, wanted: str, failed_seconds: float) -> str:
    """Return why a role will not reach `wanted` any more; empty if it may."""
    if wanted == "Failed" and phase == "Succeeded":
        return f"role {role} has succeeded and will not fail"
    if phase == "Failed" and failed_seconds >= FAILED_ROLE_GRACE_SECONDS:
        return f"role {role} has been Failed for {FAILED_ROLE_GRACE_SECONDS:g} s"
    return ""


def write_host_files(flags: argparse.Namespace, files: Sequence[str], hosts: Sequence[str]) -> None:
    if not hosts:
        raise UnreachableError("there is no host to write")
    content = host_file(hosts, flags.mpi_host_replicas, flags.mpi_implementation)
    for path in files:
        replace_file(Path(path), content.encode(), 0o644)


def host_file(hosts: Sequence[str], slots: int, implementation: str) -> str:
    if implementation == "ompi":
        lines = [f"{host} slots={slots}" for host in hosts]
    elif implementation == "mpich":
        lines = [f"{host}:{slots}" for host in hosts]
    else:
        lines = [host for host in hosts for _ in range(slots)]
    return "\n".join(lines) + "\n"


def _release_by_hand(flags: argparse.Namespace) -> int:
    """Write the host file with the addresses given, and let the one who waits go on."""
    files = [path for path in flags.write_mpi_hostfile_to.split(",") if path]
    write_host_files(flags, files, [ip for ip in flags.ips.split(",") if ip])
    Path(flags.hack_file).touch()
    return 0


def _addresses(uri: str, environ: Mapping[str, str]) -> list[tuple[str, str, int | None]]:
    """Where to ask, in this order."""
    if not uri.startswith("nodePort://"):
        parts = urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UnreachableError(f"--cacheURI {uri}: not the address of an observer")
        return [(parts.scheme, parts.hostname, parts.port)]
    listed, _, port = uri.removeprefix("nodePort://").rpartition(":")
    if not port.isdigit():
        raise UnreachableError(f"--cacheURI {uri}: there is no port")
    own = [environ["LOCAL_IP"]] if environ.get("LOCAL_IP") else []
    hosts = [*own, *(one for one in listed.split(",") if one)]
    if not hosts:
        raise UnreachableError(f"--cacheURI {uri}: there is no address, and LOCAL_IP is not set")
    scheme = "https" if environ.get("ARGOSY_CA") else "http"
    return [(scheme, host, int(port)) for host in hosts]


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _ips(role: object) -> list[str]:
    found = role.get("ips") if isinstance(role, dict) else None
    return [str(ip) for ip in found] if isinstance(found, list) else []


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "without a reason"


def _duration(text: str) -> float:
    if text == "0":
        return 0.0
    if not re.fullmatch(f"({_DURATION.pattern})+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 5s, 1m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() in ("true", "1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="initializer", description="Waits for roles of an AresJob.")
    commands = parser.add_subparsers(dest="command", required=True)
    cache = commands.add_parser("cache", help="wait for roles, as an observer tells of them")
    cache.add_argument("--key", required=True, help="NAMESPACE.JOB")
    cache.add_argument("--cacheURI", required=True, help="http(s)://HOST or nodePort://IP,…:PORT")
    cache.add_argument("--roles", default="", help="names with commas between")
    cache.add_argument("--phase", default="Running", choices=(*_ORDER, "Failed"))
    cache.add_argument("--interval", type=_duration, default=60.0)
    cache.add_argument("--timeout", type=_duration, default=3600.0, help="0: for ever")
    cache.add_argument("--dial-timeout", type=_duration, default=60.0)
    cache.add_argument("--read-timeout", type=_duration, default=60.0)
    cache.add_argument("--max-retries", type=int, default=10, help="errors in a row")
    cache.add_argument("--include-self", type=_boolean, default=True, nargs="?", const=True)
    mpi = commands.add_parser("mpi", help="write a host file by hand, and release the pod")
    mpi.add_argument("--ips", required=True, help="addresses with commas between")
    for one in (cache, mpi):
        one.add_argument("--write-mpi-hostfile-to", default="")
        one.add_argument("--mpi-host-replicas", type=int, default=1)
        one.add_argument("--mpi-implementation", default="")
        one.add_argument("--hack-file", default="/etc/ares-init")
        one.add_argument("--logtostderr", nargs="?", const="true", default="")
    return parser

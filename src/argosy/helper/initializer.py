"""Init container of AresJobs: `cache` waits for other roles and writes host files, `mpi` releases it by hand.

It has the flags and the protocol of AresOperator's initializer. If the observer supports long polls, a change
is reported at once. Exit codes: 0 released, 1 failed, 2 invalid flags.
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
"""Longest time that the observer may delay its response until something changes."""
MAX_RESPONSE_BYTES = 64 * 1024 * 1024

_ORDER = ("Pending", "Starting", "Running", "Succeeded")
_FINISHED = ("Succeeded", "Failed")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")


class UnreachableError(Exception):
    """The awaited phase will not be reached, or not in time."""


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
"""The job's phase, and its roles by name."""
_RETRYABLE = (OSError, HTTPException, ValueError, RecursionError)
"""Errors of a request; a response may contain anything."""


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
        """The long poll of the last request; 0 if it was not one."""
        self.changed = False
        self.early_responses = 0
        """Responses in a row that came without a change and before the end of the long poll."""
        self.last_response: _JobState = ("", {})
        self.last_message = ""
        self.failed_since: dict[str, float] = {}

    def run(self) -> int:
        """Wait until released; raise UnreachableError if that cannot happen or takes too long."""
        if not self.roles:
            self._write({})
            return 0
        errors = 0
        while True:
            sent_at = time.monotonic()
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
                pause = self._pause(time.monotonic() - sent_at)
            if Path(self.flags.hack_file).exists():
                print("initializer: released by hand", flush=True)
                return 0
            left = self._left(pause)
            if left <= 0 and self.deadline is not None:
                raise UnreachableError(f"not released within {self.flags.timeout:g} s; {self.last_message}")
            time.sleep(max(0.0, min(pause, left)))

    def _pause(self, took: float) -> float:
        """Return the seconds until the next request: 0 if the observer supports long polls.

        An observer that is stopping responds early, and the next request may be sent at once. One that always
        responds early is asked at the usual interval.
        """
        waited = self.changed or took >= self.long_poll_seconds / 2
        self.early_responses = 0 if waited else self.early_responses + 1
        if self.etag and self.early_responses <= 1:
            return 0.0
        return float(self.flags.interval * (0.5 + random.random()))  # noqa: S311 - spreads requests

    def _left(self, seconds: float) -> float:
        """Return the seconds until the deadline; `seconds` if there is none."""
        return seconds if self.deadline is None else self.deadline - time.monotonic()

    def _report_error(self, error: BaseException, errors: int) -> None:
        message = str(error) or type(error).__name__
        if errors > self.flags.max_retries:
            raise UnreachableError(f"{errors} requests to the observer in a row failed: {message}")
        self.last_message = f"request to the observer failed: {message}"
        print(f"initializer: {self.last_message}", file=sys.stderr, flush=True)

    def _query(self) -> _JobState:
        """Return the response of the first address that responds."""
        problem: Exception = OSError("no address")
        for scheme, host, port in self.addresses:
            try:
                return self._query_at(scheme, host, port)
            except _RETRYABLE as error:
                problem = error
        raise problem

    def _query_at(self, scheme: str, host: str, port: int | None) -> _JobState:
        """Return the state of the job, which is the last one if it has not changed."""
        headers, query = self._request_parts()
        connection = self._connection(scheme, host, port)
        try:
            connection.connect()
            if connection.sock is not None:
                timeout = self.flags.read_timeout + self.long_poll_seconds
                connection.sock.settimeout(max(0.1, min(timeout, self._left(timeout))))
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
                raise HTTPException("invalid response: must be an object with the roles of the job")
            tag = response.getheader("ETag") or ""
            self.changed, self.etag = tag != self.etag, tag
            return response.getheader("Ares-Job-Phase") or "", roles
        finally:
            connection.close()

    def _request_parts(self) -> tuple[dict[str, str], str]:
        """Return headers and query; a long poll ends before the deadline and the grace of a failed role."""
        headers = {}
        if token := self.environ.get("ARES_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        self.long_poll_seconds = 0.0
        if not self.etag:
            return headers, ""
        grace = (
            min(self.failed_since.values(), default=time.monotonic())
            + FAILED_ROLE_GRACE_SECONDS
            - time.monotonic()
        )
        self.long_poll_seconds = max(
            1.0, math.ceil(min(LONG_POLL_SECONDS, grace, self._left(LONG_POLL_SECONDS)))
        )
        return {**headers, "If-None-Match": self.etag}, f"?wait={self.long_poll_seconds:.0f}"

    def _connection(self, scheme: str, host: str, port: int | None) -> HTTPConnection:
        timeout = max(0.1, min(self.flags.dial_timeout, self._left(self.flags.dial_timeout)))
        if scheme != "https":
            return HTTPConnection(host, port, timeout=timeout)
        authority = self.environ.get("ARGOSY_CA")
        tls = ssl.create_default_context(cadata=authority or None)
        if authority and _is_address(host):
            # This authority signs certificates of the endpoint only, and these have no addresses.
            tls.check_hostname = False
        return HTTPSConnection(host, port, timeout=timeout, context=tls)

    def _is_released(self, job_phase: str, roles: dict[str, object]) -> bool:
        """Return True after writing the host files if all roles are as wanted; otherwise print why not."""
        if job_phase in _FINISHED:
            raise UnreachableError(f"the job is {job_phase}")
        if reason := self._first_wait_reason(roles):
            if reason != self.last_message:
                print(f"initializer: {reason}", flush=True)
            self.last_message = reason
            return False
        self._write(roles)
        print("initializer: released", flush=True)
        return True

    def _first_wait_reason(self, roles: Mapping[str, object]) -> str:
        if not roles:  # the job has no status yet, or one of a later operator
            return "waiting for the roles of the job to be reported"
        reasons = [self._wait_reason(name, roles.get(name)) for name in self.roles]
        return next(filter(None, reasons), "")

    def _write(self, roles: Mapping[str, object]) -> None:
        if self.files:
            hosts = [ip for name in self.roles for ip in _ips(roles.get(name))]
            write_host_files(self.flags, self.files, [*self._own_ip(), *hosts])

    def _wait_reason(self, name: str, role: object) -> str:
        """Return why the pod waits for this role; empty if it does not."""
        if not isinstance(role, dict):
            raise UnreachableError(f"unknown role {name}")
        phase, wanted = str(role.get("phase")), self.flags.phase
        if not is_reached(phase, wanted):
            self._check_reachable(name, phase, wanted)
            return f"waiting for role {name} to be {wanted}; it is {phase}"
        self.failed_since.pop(name, None)
        addresses, replicas = len(_ips(role)), role.get("replicas")
        if self.files and isinstance(replicas, int) and addresses < replicas:
            return f"waiting for the addresses of role {name}; {addresses} of {replicas} are known"
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
        raise UnreachableError("no host to write")
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
    """Write the host files with the addresses from the flags, and release the waiting initializer."""
    files = [path for path in flags.write_mpi_hostfile_to.split(",") if path]
    write_host_files(flags, files, [ip for ip in flags.ips.split(",") if ip])
    Path(flags.hack_file).touch()
    return 0


def _addresses(uri: str, environ: Mapping[str, str]) -> list[tuple[str, str, int | None]]:
    """Return scheme, host and port of each address, in the order in which they are tried."""
    if not uri.startswith("nodePort://"):
        parts = urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UnreachableError(
                f"--cacheURI: invalid value {uri}: must be http(s)://HOST or nodePort://IP,…:PORT"
            )
        return [(parts.scheme, parts.hostname, parts.port)]
    listed, _, port = uri.removeprefix("nodePort://").rpartition(":")
    if not port.isdigit():
        raise UnreachableError(f"--cacheURI: invalid value {uri}: must have a port")
    own = [environ["LOCAL_IP"]] if environ.get("LOCAL_IP") else []
    hosts = [*own, *(host for host in listed.split(",") if host)]
    if not hosts:
        raise UnreachableError(
            f"--cacheURI: invalid value {uri}: must have an address, as LOCAL_IP is not set"
        )
    scheme = "https" if environ.get("ARGOSY_CA") else "http"
    return [(scheme, host, int(port)) for host in hosts]


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _ips(role: object) -> list[str]:
    ips = role.get("ips") if isinstance(role, dict) else None
    return [str(ip) for ip in ips] if isinstance(ips, list) else []


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "(no reason)"


def _duration(text: str) -> float:
    if text == "0":
        return 0.0
    if not re.fullmatch(f"({_DURATION.pattern})+", text):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: must be a duration, such as 5s or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: must be true or false")
    return text.lower() in ("true", "1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="initializer", description="Waits for roles of an AresJob.")
    commands = parser.add_subparsers(dest="command", required=True)
    cache = commands.add_parser("cache", help="wait for roles whose phases an observer reports")
    cache.add_argument("--key", required=True, help="NAMESPACE.JOB")
    cache.add_argument("--cacheURI", required=True, help="http(s)://HOST or nodePort://IP,…:PORT")
    cache.add_argument("--roles", default="", help="names, separated by commas")
    cache.add_argument("--phase", default="Running", choices=(*_ORDER, "Failed"))
    cache.add_argument("--interval", type=_duration, default=60.0)
    cache.add_argument("--timeout", type=_duration, default=3600.0, help="0: no limit")
    cache.add_argument("--dial-timeout", type=_duration, default=60.0)
    cache.add_argument("--read-timeout", type=_duration, default=60.0)
    cache.add_argument("--max-retries", type=int, default=10, help="errors in a row")
    cache.add_argument("--include-self", type=_boolean, default=True, nargs="?", const=True)
    mpi = commands.add_parser("mpi", help="write a host file by hand, and release the pod")
    mpi.add_argument("--ips", required=True, help="addresses, separated by commas")
    for command in (cache, mpi):
        command.add_argument("--write-mpi-hostfile-to", default="")
        command.add_argument("--mpi-host-replicas", type=int, default=1)
        command.add_argument("--mpi-implementation", default="")
        command.add_argument("--hack-file", default="/etc/ares-init")
        command.add_argument("--logtostderr", nargs="?", const="true", default="")
    return parser

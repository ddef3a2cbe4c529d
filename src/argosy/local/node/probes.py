"""Counts probe results up to a verdict, and runs the checks.

A check runs in a child process of the shim (exec in the container, others in the pod's network), so a check
that hangs costs nothing but its timeout. Standard library only.
"""

import socket
import time
from enum import Enum
from typing import Final, NamedTuple

from argosy.local.node.runspec import Action, HttpAction, ProbeConfig


class ProbeVerdict(Enum):
    SUCCESS = "success"
    FAILURE = "failure"
    UNDECIDED = "undecided"


class ProbeCounter(NamedTuple):
    """Counts equal results in a row."""

    successes: int = 0
    failures: int = 0

    def with_result(self, good: bool) -> "ProbeCounter":
        return ProbeCounter(self.successes + 1, 0) if good else ProbeCounter(0, self.failures + 1)

    def verdict(self, config: ProbeConfig) -> ProbeVerdict:
        if self.successes >= config["successes"]:
            return ProbeVerdict.SUCCESS
        if self.failures >= config["failures"]:
            return ProbeVerdict.FAILURE
        return ProbeVerdict.UNDECIDED


_MAX_RESPONSE_BYTES: Final = 10 * 1024


def run_check(action: Action, address: str, timeout: float) -> int:
    """Perform an action that needs no container; return 0 on success. Runs in a child process."""
    if "sleep" in action:
        time.sleep(action["sleep"])
        return 0
    if "tcp" in action:
        host, port = action["tcp"]
        socket.create_connection((host or address, port), timeout).close()
        return 0
    return 0 if 200 <= http_get(action["http"], address, timeout) < 400 else 1


def http_get(action: HttpAction, address: str, timeout: float) -> int:
    """Return the status code of a GET. Does not use http.client, whose memory every shim would pay for."""
    host = action["host"] or address
    connection: socket.socket = socket.create_connection((host, action["port"]), timeout)
    if action["scheme"].upper() == "HTTPS":
        import ssl

        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = context.wrap_socket(connection, server_hostname=host)
    headers = dict(action["headers"])
    headers.setdefault("Host", f"{host}:{action['port']}")
    headers.setdefault("User-Agent", "kube-probe/argosy")
    headers.setdefault("Accept", "*/*")
    lines = [
        f"GET {action['path'] or '/'} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    with connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        answer = b""
        while b"\r\n" not in answer and len(answer) < _MAX_RESPONSE_BYTES:
            piece = connection.recv(4096)
            if not piece:
                break
            answer += piece
    parts = answer.split(None, 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


def event_name(kind: str) -> str:
    """Return the name of a kind of probe in events."""
    return {"startup": "Startup", "readiness": "Readiness", "liveness": "Liveness"}[kind]

"""Keeps the files with the host list of a launcher current, and acknowledges each version to the operator.

Runs as a sidecar of the launcher. Each request has the ETag of the files that were written last, so that the
operator answers at the next change. Files are replaced in one step, and never by an older version: a command
of the operator may have written a newer one while this program could not reach it. Whatever fails is tried
again; only SIGTERM ends it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

from argosy.helper.endpoint import Endpoint
from argosy.helper.errors import RejectedError
from argosy.helper.files import replace_file

POLL_SECONDS = 30
REJECTED_SECONDS = 30.0
"""Seconds until an operator that rejects requests is asked again."""
RETRY_SECONDS = 1
"""Seconds until a failed acknowledgement or write is repeated; doubled up to MAX_RETRY_SECONDS."""
MAX_RETRY_SECONDS = 8
ACK_TIMEOUT_SECONDS = 15.0


class HostFile(NamedTuple):
    path: Path
    mode: int
    content: bytes


class Hosts(NamedTuple):
    """An answer of the operator; without files if there are no newer ones."""

    etag: str
    version: int = -1
    version_file: Path = Path()
    files: tuple[HostFile, ...] = ()


def write_once(endpoint: Endpoint, seconds: float | None = None) -> int:
    """Write the current files; 0 once they exist."""
    deadline = None if seconds is None else time.monotonic() + seconds
    wait = POLL_SECONDS if seconds is None else min(POLL_SECONDS, seconds)
    _write(endpoint.get("hosts", {"wait": f"{wait:.0f}s"}, deadline, read_answer))
    return 0


def keep_current(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> NoReturn:
    """Write and acknowledge every version of the files, until SIGTERM."""
    # Exit code 0: kubectl shows another one of a sidecar as the state of a pod that succeeded.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    pod = {"pod": environ.get("ARGOSY_POD_NAME", ""), "uid": environ.get("ARGOSY_POD_UID", "")}
    keeper = _Keeper(endpoint, pod)
    while True:
        keeper.run_once()


class _Keeper:
    """What is remembered between two requests."""

    def __init__(self, endpoint: Endpoint, pod: Mapping[str, str]) -> None:
        self._endpoint = endpoint
        self._pod = pod
        self._written = Hosts("")
        self._acknowledged = True
        self._retry_seconds = RETRY_SECONDS
        self._problem = ""
        """What was printed last, so that it is printed once."""

    def run_once(self) -> None:
        """Wait for newer files, write and acknowledge them; return after some time if there are none."""
        started = time.monotonic()
        has_written = False
        try:
            hosts = self._ask()
            is_new = bool(hosts.files) and hosts.version >= self._written.version
            if self._write(hosts if is_new else self._written):
                has_written = is_new
                self._acknowledge()
        except RejectedError as error:
            self._print_once(f"the operator rejects the request: {error}")
            self._written = self._written._replace(etag="")
            time.sleep(REJECTED_SECONDS)
        if not has_written:
            # A replica that is stopping, or whose cache lags, answers at once and perhaps again.
            time.sleep(max(started + RETRY_SECONDS - time.monotonic(), 0.0))

    def _ask(self) -> Hosts:
        wait = POLL_SECONDS if self._acknowledged else self._retry_seconds
        query = {"etag": self._written.etag, "wait": f"{wait}s"}
        return self._endpoint.get("hosts", query, None, read_answer)

    def _write(self, hosts: Hosts) -> bool:
        """Make the files those of the answer; return True if they are, or were already."""
        try:
            if not hosts.files or not _write(hosts):
                return False
        except OSError as error:
            self._fail(f"host files not written: {error}")
            time.sleep(self._retry_seconds)
            return False
        if hosts.etag != self._written.etag:
            self._written, self._acknowledged, self._retry_seconds = hosts, False, RETRY_SECONDS
        return True

    def _acknowledge(self) -> None:
        if self._acknowledged:
            return
        body = {**self._pod, "etag": self._written.etag}
        if problem := self._endpoint.post_json("hosts/ack", body, ACK_TIMEOUT_SECONDS):
            self._fail(f"host list not acknowledged: {problem}")
        else:
            self._acknowledged, self._problem = True, ""

    def _fail(self, problem: str) -> None:
        self._print_once(problem)
        self._retry_seconds = min(self._retry_seconds * 2, MAX_RETRY_SECONDS)

    def _print_once(self, problem: str) -> None:
        if problem != self._problem:
            print(f"argosy: {problem}; trying again", file=sys.stderr, flush=True)
        self._problem = problem


def read_answer(body: bytes) -> Hosts | None:
    """Return the operator's answer; None if it is not one."""
    try:
        answer = json.loads(body)
        if "files" not in answer:
            return Hosts(str(answer["etag"]))
        files = tuple(
            HostFile(_absolute(file["path"]), int(file["mode"]) & 0o777, file["content"].encode())
            for file in answer["files"]
        )
        return Hosts(str(answer["etag"]), int(answer["version"]), _absolute(answer["versionFile"]), files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _absolute(path: str) -> Path:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path}: must be an absolute path")
    return Path(path)


def _write(hosts: Hosts) -> bool:
    """Replace the files that differ; return False if those that exist are of a later version."""
    version = f"{hosts.version}\n".encode()
    if _existing_version(hosts.version_file) > hosts.version:
        return False
    # The version first, so that an older command that runs at the same time gives up.
    files = (HostFile(hosts.version_file, 0o644, version), *hosts.files)
    changed = [file for file in files if not _is_current(file)]
    for file in changed:
        replace_file(file.path, file.content, file.mode)
    if changed:
        print(f"argosy: host list {hosts.etag} written ({len(hosts.files)} files)", flush=True)
    return True


def _existing_version(path: Path) -> int:
    try:
        return int(path.read_bytes()[:20])
    except (OSError, ValueError):
        return -1


def _is_current(file: HostFile) -> bool:
    try:
        same_mode = file.path.stat().st_mode & 0o777 == file.mode
        return same_mode and file.path.read_bytes() == file.content
    except OSError:
        return False

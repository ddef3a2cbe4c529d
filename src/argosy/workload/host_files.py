"""Renders the files in which a launcher finds its host list, from the list in the Record.

The ConfigMap, the endpoint that the launcher's sidecar asks, and commands that write the files in its place
all use this one function. The Record has the digest of its result, so that a replica of another version of
the operator, or one that has seen a newer spec, does not serve other files than the leader has decided on.

An empty list is never rendered: launchers end when they read one, and a Record has one only before the first
hosts are listed, or if it was lost.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property

import msgspec
from msgspec import Struct

from argosy.workload.host_list import HostFile
from argosy.workload.model import Workload
from argosy.workload.record import Record

VERSION_FILE = ".host-list-version"
"""File in `HostList.launcher_folder` with the version of the others, so that no older list replaces them."""


class LiveFile(Struct, frozen=True):
    """A file in the launcher that is kept current."""

    path: str
    mode: int
    content: str


class HostFiles(Struct, frozen=True, dict=True):
    """All files of a host list."""

    data: Mapping[str, str]
    """Content by key of the ConfigMap."""
    live: tuple[LiveFile, ...]
    """The copies in the launcher; empty if it has none."""
    version: int
    """Of the list: higher than that of every earlier list which the same launcher may have read."""
    version_file: str
    """Path of the file in the launcher that holds the version."""

    @cached_property
    def digest(self) -> str:
        """Return what the copies in the launcher are compared by; empty if it has none."""
        return hashlib.sha256(msgspec.json.encode(self.live)).hexdigest()[:16] if self.live else ""


def render_host_files(workload: Workload, record: Record) -> HostFiles | None:
    """Return the files of the job's host list; None if it has none, or no host is listed yet."""
    rule = workload.rules.host_list
    last = record.role(rule.role) if rule else None
    if rule is None or last is None or not rule.files or not last.listed:
        return None
    slots = workload.roles[rule.role].slots or 1
    hosts = [workload.hostname(rule.role, index) for index in last.listed]
    data = {file.key: _content(file, hosts, slots) for file in rule.files}
    live = tuple(LiveFile(path, file.mode, data[file.key]) for file in rule.files for path in file.paths)
    return HostFiles(data, live, last.listed_version, f"{rule.launcher_folder}/{VERSION_FILE}")


def config_map_name(workload: Workload) -> str:
    """Return the name of the ConfigMap with the host list; empty if the job has none."""
    rule = workload.rules.host_list
    return rule.config_map.format(job=workload.name) if rule else ""


def _content(file: HostFile, hosts: list[str], slots: int) -> str:
    return "".join(file.line.format(host=host, slots=slots) for host in hosts) if file.line else file.text

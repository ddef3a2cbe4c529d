"""Defines how the children of a job are named."""

from collections.abc import Mapping

from msgspec import Struct, field


class Naming(Struct, frozen=True):
    """Names of a job's children, as formats of {job}, {role} and {index}."""

    host: str = "{job}-{role}-{index}"
    """Host name of a replica, and the name of its pod unless the API adds something to that."""
    role_hosts: Mapping[str, str] = field(default_factory=dict)
    """The same for roles that differ."""
    service: str = "{job}-{role}"
    """Headless Service of a role, which is also the subdomain of its pods."""
    account: str = "{job}-{role}"
    """ServiceAccount, Role and RoleBinding of a role whose pods start processes in others."""
    ssh_keys: str = "{job}-ssh"
    """Secret with the job's keys for ssh."""


def numbered_bytes(count: int, fixed: int) -> int:
    """Return the total length of `count` texts of `fixed` characters and their number, counted from 0."""
    digits, step = count, 10
    while step < count:
        digits += count - step
        step *= 10
    return count * fixed + digits

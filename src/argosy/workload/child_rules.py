"""Defines what children of a job contain that differs between APIs: accounts of launchers and Secrets."""

from collections.abc import Mapping

from msgspec import Struct, field


class AccountRule(Struct, frozen=True):
    """A right over objects of the job, which are always named."""

    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Names of the objects; empty: the existing pods in which processes are started."""


class LauncherAccount(Struct, frozen=True):
    """The ServiceAccount, Role and RoleBinding of pods that start processes in other pods of the job."""

    rules: tuple[AccountRule, ...] = (
        AccountRule("pods", ("get",)),
        AccountRule("pods/exec", ("get", "create")),
    )
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of all three, in addition to those of all children."""


class GeneratedSecret(Struct, frozen=True):
    """A Secret with random content, created once before the first pods that mount it."""

    name: str
    generator: str
    roles: tuple[str, ...]
    """Roles whose pods mount it."""

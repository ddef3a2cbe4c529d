"""Defines which replicas a launcher finds in its host list, and how they are checked."""

from msgspec import Struct


class HostList(Struct, frozen=True):
    """A launcher reads the hosts that it may use from a list, which changes while it runs."""

    role: str
    """The role whose replicas are listed."""
    launcher: str
    container: str
    """The container of a listed pod in which the launcher starts processes."""
    launcher_container: str
    launcher_folder: str
    """A folder that is writable in that container and lives as long as its pod."""
    attach_check: tuple[str, ...] = ("true",)
    """A command in that container that succeeds if the launcher can start processes there."""
    drain_check: tuple[str, ...] = ()
    """A command in the launcher that prints those of its last arguments, host names, that the launcher still
    uses."""
    min_listed: int = 1
    """A scale-in does not leave fewer hosts in the list."""
    max_members: int | None = None

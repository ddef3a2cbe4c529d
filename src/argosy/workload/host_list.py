"""Defines which replicas a launcher finds in its host list, in which files, and how they are checked."""

from msgspec import Struct


class HostFile(Struct, frozen=True):
    """The host list in one form, or a fixed text that belongs to it."""

    key: str
    """Its key in the ConfigMap."""
    line: str = ""
    """What each host adds, as a format of {host} and {slots}."""
    text: str = ""
    """The content, if it does not depend on the hosts."""
    paths: tuple[str, ...] = ()
    """Absolute paths of copies in the launcher that are kept current; none: in the ConfigMap only."""
    mode: int = 0o644
    """Of these copies."""
    config_map_mode: int = 0o444
    """Of the file where the ConfigMap is mounted."""


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
    """A command in that container that succeeds if the launcher can start processes there; empty: that is so
    as soon as the pod runs."""
    drain_check: tuple[str, ...] = ()
    """A command in the launcher that prints those of its last arguments, host names, that the launcher still
    uses; empty: it has left those that are not in the list."""
    min_listed: int = 1
    """A scale-in does not leave fewer hosts in the list."""
    max_members: int | None = None
    """Most replicas that the role may have."""
    files: tuple[HostFile, ...] = ()
    config_map: str = ""
    """Name of the ConfigMap with the files, as a format of {job}; empty: there is none."""

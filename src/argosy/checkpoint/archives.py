"""Reads the names of archives that kubelets write: `checkpoint-<pod>_<namespace>-<container>-<time>.tar`."""

from datetime import datetime

from msgspec import Struct


class ContainerName(Struct, frozen=True):
    """A container of a pod."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


def archive_time(file_name: str, container: ContainerName) -> datetime | None:
    """Return when an archive of this container was written; None if the file is no such archive."""
    prefix = f"checkpoint-{container.pod}_{container.namespace}-{container.container}-"
    if not file_name.startswith(prefix) or not file_name.endswith(".tar"):
        return None
    try:
        time = datetime.fromisoformat(file_name.removeprefix(prefix).removesuffix(".tar"))
    except ValueError:
        return None
    return time if time.tzinfo else None

"""Reads and builds names of images: `registry/repository:tag@digest`.

The first segment of a repository string is the registry if it contains `.` or `:` or is `localhost`;
otherwise the registry is `docker.io`, where a single segment is below `library/`. Only `with_registry` adds a
registry to a name, and only if it has none.
"""

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from msgspec import Struct

from argosy.kinds.text import shorten

DOCKER_HUB = "docker.io"
MAX_REPOSITORY_CHARS = 255

_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class InvalidImageNameError(ValueError):
    """A string is not a repository or an image name; the message says why."""


class Repository(Struct, frozen=True):
    """A repository of a registry."""

    registry: str
    path: str

    def __str__(self) -> str:
        return f"{self.registry}/{self.path}"

    def image(self, reference: str) -> "Image":
        """Return the image of a tag or a digest."""
        return Image(self, digest=reference) if is_digest(reference) else Image(self, tag=reference)


class Image(Struct, frozen=True):
    """An image: a repository with a tag or a digest, or both."""

    repository: Repository
    tag: str = ""
    digest: str = ""

    @property
    def reference(self) -> str:
        """The digest, or else the tag: what the registry is asked for."""
        return self.digest or self.tag

    def __str__(self) -> str:
        tag, digest = self.tag and f":{self.tag}", self.digest and f"@{self.digest}"
        return f"{self.repository}{tag}{digest}"


def parse_repository(text: str) -> Repository:
    """Return the repository; raises InvalidImageNameError, also for a scheme, a tag or a digest."""
    if "://" in text:
        raise _invalid(text, "must have no scheme")
    if "@" in text:
        raise _invalid(text, "must have no digest")
    registry, path = _split_registry(text)
    if ":" in path:
        raise _invalid(text, "must have no tag")
    return _repository(text, registry, path)


def parse_store(uri: str) -> Repository:
    """Return the repository of `oci://registry/repository`; raises InvalidImageNameError without a registry.

    `oci://team/checkpoints` could mean a host named team, or as in image names a repository of Docker Hub.
    """
    name = uri.removeprefix("oci://")
    registry, slash, _ = name.partition("/")
    if not slash or not _is_registry(registry):
        problem = "must be oci://REGISTRY/REPOSITORY, where the registry has a dot or a port"
        raise _invalid(uri, problem)
    return parse_repository(name)


def parse_image(text: str) -> Image:
    """Return the image; the tag is `latest` if there is neither tag nor digest."""
    if "://" in text:
        raise _invalid(text, "must have no scheme")
    name, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise _invalid(text, "the digest must be sha256: and 64 hexadecimal digits")
    registry, path_and_tag = _split_registry(name)
    path, colon, tag = path_and_tag.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _invalid(text, f"invalid tag {tag!r}")
    if not tag and not digest:
        tag = "latest"
    return Image(_repository(text, registry, path), tag, digest)


def with_registry(url: str, image: str) -> Image:
    """Return the image in the registry at this URL or host; the image may name that registry already.

    An image that names another registry is invalid, so that no registry gets the credentials of another.
    """
    host = registry_host(url)
    first, slash, _ = image.partition("/")
    if not (slash and _is_registry(first)):
        return parse_image(f"{host}/{image}")
    if _canonical_host(first) != host:
        raise _invalid(image, f"must be an image of the registry {host}")
    return parse_image(image)


def registry_host(url: str) -> str:
    """Return the host of a registry that is given as `host`, `host:port` or as a URL."""
    host = url.partition("://")[2] if "://" in url else url
    host = host.rstrip("/")
    if not _HOST.fullmatch(host):
        raise _invalid(url, "must be the host of a registry")
    return _canonical_host(host)


def local_image(pod: str, container: str, at: datetime) -> Image:
    """Return the image of a checkpoint that is not pushed to a registry, with its time as the tag."""
    path = shorten(f"checkpoint-{pod}-{container}", MAX_REPOSITORY_CHARS)
    return parse_image(f"localhost/{path}:{at.astimezone(UTC):%Y%m%d-%H%M%S}")


def checkpoint_tag(container: str, stamp: int) -> str:
    """Return the tag of a container's checkpoint; `stamp` is a Unix time, of which a job uses none twice."""
    return f"{container}-{stamp}"


def complete_stamps(tags: Iterable[str], containers: Collection[str]) -> list[int]:
    """Return the stamps for which every container has a tag, newest first."""
    stamps: dict[str, set[int]] = {container: set() for container in containers}
    for tag in tags:
        container, dash, stamp = tag.rpartition("-")
        if dash and container in stamps and stamp.isascii() and stamp.isdigit():
            stamps[container].add(int(stamp))
    return sorted(set.intersection(*stamps.values()), reverse=True) if stamps else []


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _split_registry(text: str) -> tuple[str, str]:
    first, slash, path = text.partition("/")
    if slash and _is_registry(first):
        host = _canonical_host(first)
        return host, _with_library(path) if host == DOCKER_HUB else path
    if text in ("", "localhost") or ("." in text and ":" not in text and not slash):
        raise _invalid(text, "must name a repository")
    return DOCKER_HUB, _with_library(text)


def _is_registry(segment: str) -> bool:
    return "." in segment or ":" in segment or segment == "localhost"


def _with_library(text: str) -> str:
    return text if "/" in text else f"library/{text}"


def _canonical_host(host: str) -> str:
    return DOCKER_HUB if host in ("index.docker.io", "registry-1.docker.io") else host


def _repository(text: str, registry: str, path: str) -> Repository:
    if not _HOST.fullmatch(registry):
        raise _invalid(text, f"invalid registry {registry!r}")
    components = path.split("/")
    if "" in components:
        raise _invalid(text, "must have no empty segment")
    if path != path.lower():
        raise _invalid(text, "the repository must be lower case")
    for component in components:
        if not _COMPONENT.fullmatch(component):
            raise _invalid(text, f"invalid segment {component!r}")
    if len(path) > MAX_REPOSITORY_CHARS:
        raise _invalid(text, f"the repository must have at most {MAX_REPOSITORY_CHARS} characters")
    return Repository(registry, path)


def _invalid(text: str, problem: str) -> InvalidImageNameError:
    shown = text if len(text) <= 100 else f"{text[:97]}..."
    return InvalidImageNameError(f"invalid image name {shown!r}: {problem}")

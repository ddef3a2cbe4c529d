"""Answers questions about checkpoint images by asking their registry: the driver `registry` of calls."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from argosy.checkpoint.drivers.registry import Manifest, Registry
from argosy.checkpoint.drivers.registry_authority import read_authority, read_authority_file
from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.image_names import (
    Image,
    InvalidImageNameError,
    Repository,
    checkpoint_tag,
    complete_stamps,
    parse_image,
    parse_repository,
)
from argosy.checkpoint.image_requests import DeleteImages, FindNewest, FoundImages, VerifyImages
from argosy.checkpoint.images import is_of_owner
from argosy.checkpoint.registry_login import InvalidLoginError, encoded, read_login
from argosy.engine.logs import Logger
from argosy.plan.drivers import Credentials, Refusal

IMAGE_NOT_FOUND = "ImageNotFound"
DIGEST_MISMATCH = "DigestMismatch"
"""Codes of refusals: an image is not there, or is another one."""

MAX_STAMPS = 50
"""Checkpoints that are looked at, the newest first, to find one of the owner."""

log = Logger(__name__)


class RegistryDriver:
    """Speaks to the registry that a request names, with the login of its credentials."""

    def __init__(self, plain_http: Collection[str] = (), authority: Path | None = None) -> None:
        """`plain_http` are registries that are reached without TLS, besides those on this machine.

        `authority` is a file with the certificates by which registries are trusted whose Secret has none.
        While it cannot be used, such a registry counts as one that does not answer.
        """
        self._plain_http = frozenset(plain_http)
        self._authority = authority
        self._problem = ""
        """What was wrong with the file when it was read last."""

    async def call(self, request: Struct, credentials: Credentials) -> Struct | None:
        try:
            match request:
                case VerifyImages():
                    return await self._verify(request, credentials)
                case FindNewest():
                    return await self._find_newest(request, credentials)
                case DeleteImages():
                    await self._delete(request, credentials)
                    return None
        except InvalidImageNameError as error:
            raise Refusal("InvalidImageName", str(error)) from error
        except InvalidLoginError as error:
            raise Refusal("InvalidCredentials", str(error)) from error
        except RegistryError as error:
            if error.is_temporary:
                raise OSError(error.message) from error
            raise Refusal(error.code, error.message) from error
        raise Refusal("NotSupported", f"unknown request {type(request).__name__}")

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        raise Refusal("NotSupported", "registries have no views")

    @asynccontextmanager
    async def _connect(self, repository: Repository, credentials: Credentials) -> AsyncIterator[Registry]:
        host, secret = repository.registry, encoded(credentials)
        plain_http = host in self._plain_http
        login, authority = (read_login(secret, host), read_authority(secret)) if secret else (None, None)
        if authority is None and self._authority is not None and not plain_http:
            authority = await self._read_file(self._authority)
        async with Registry(host, login, authority=authority, plain_http=plain_http) as registry:
            yield registry

    async def _read_file(self, file: Path) -> bytes:
        """Return the certificates in the file; a problem with it is logged when it begins."""
        problem = ""
        try:
            return await read_authority_file(file)
        except RegistryError as error:
            problem = error.message
            raise
        finally:
            if problem and problem != self._problem:
                log.warning("registries are not asked", error=problem)
            self._problem = problem

    async def _verify(self, request: VerifyImages, credentials: Credentials) -> FoundImages:
        """Return the images with the digests that the registry has; refuse if one is missing or another."""
        digests: dict[str, str] = {}
        for container, name in request.images.items():
            image = parse_image(name)
            async with self._connect(image.repository, credentials) as registry:
                digest = await registry.head_manifest(image)
            if digest is None:
                raise Refusal(IMAGE_NOT_FOUND, f"image {name} does not exist")
            recorded = request.digests.get(container, digest)
            if recorded != digest:
                raise Refusal(DIGEST_MISMATCH, f"image {name} has digest {digest}; recorded was {recorded}")
            digests[container] = digest
        return FoundImages(request.images, digests)

    async def _find_newest(self, request: FindNewest, credentials: Credentials) -> FoundImages:
        repository = parse_repository(request.repository)
        async with self._connect(repository, credentials) as registry:
            tags = await registry.tags(repository)
            for stamp in complete_stamps(tags, request.containers)[:MAX_STAMPS]:
                images = {c: repository.image(checkpoint_tag(c, stamp)) for c in request.containers}
                manifests = [await _manifest(registry, image) for image in images.values()]
                if all(manifest is not None and _belongs(manifest, request.owner) for manifest in manifests):
                    digests = {c: m.digest for c, m in zip(images, manifests, strict=True) if m is not None}
                    return FoundImages({c: str(image) for c, image in images.items()}, digests, stamp)
        return FoundImages()

    async def _delete(self, request: DeleteImages, credentials: Credentials) -> None:
        for name in request.images:
            image = parse_image(name)
            async with self._connect(image.repository, credentials) as registry:
                await registry.delete_manifest(image)


async def _manifest(registry: Registry, image: Image) -> Manifest | None:
    try:
        return await registry.get_manifest(image)
    except RegistryError as error:
        if error.is_temporary:
            raise
        return None


def _belongs(manifest: Manifest, owner: str) -> bool:
    return is_of_owner(manifest.content.annotations or {}, owner)

"""Finds the checkpoints that pods name as their images, and fetches them from registries.

Images are not pulled here, with one exception: an image whose manifest says that it is a container's
checkpoint. So the manifest is looked at of each image that names a registry. A registry that does not answer,
or does not show the manifest, has no checkpoint for us: pods must start without a network. It is an error, as
for any image that cannot be pulled, of a registry on this machine or one for which the pod has a login, and
of a container that an annotation of the pod says is restored: it would start from the beginning. A folder
that holds an unpacked checkpoint, of `argosy up --image NAME=DIR`, is one too.
"""

import asyncio
import base64
import contextlib
import fcntl
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final, NamedTuple

from argosy.checkpoint.image_names import Image, InvalidImageNameError, parse_image
from argosy.checkpoint.images import CONTAINER
from argosy.checkpoint.registry_login import InvalidLoginError, Login, read_login
from argosy.engine.logs import Logger
from argosy.kinds.labels import RESTORED_CONTAINERS
from argosy.local.node import kernel
from argosy.local.node.checkpoint_files import CheckpointError, read_metadata, unpack_checkpoint
from argosy.local.node.pod_types import Pod, Secret
from argosy.local.node.settings import Settings

log = Logger(__name__)

FindSecret = Callable[[str, str], Secret | None]

_ANNOTATIONS: Final = (CONTAINER, "io.kubernetes.cri-o.annotations.checkpoint.name")
_EXPECTED: Final = f"it must be one, by the annotation {RESTORED_CONTAINERS} of the pod"
_NAMESPACE_OF_SOCKET: Final = 0x894C  # SIOCGSKNS
_MANIFEST_SECONDS: Final = 5.0
_REMEMBER_SECONDS: Final = 60.0
_MAX_REMEMBERED: Final = 1000


class ImageError(Exception):
    """An image that is a checkpoint cannot be used; the message says why."""


class _PullError(Exception):
    """A registry does not answer, or has no such image."""


class RestoreSource(NamedTuple):
    folder: Path
    image: str
    """The image that the container ran when it was dumped."""


class CheckpointImages:
    def __init__(
        self, settings: Settings, host_socket: socket.socket | None, find_secret: FindSecret
    ) -> None:
        self._settings = settings
        self._find_secret = find_secret
        self._host_socket = host_socket
        """Belongs to the machine's network: its loopback addresses are not those of the cluster."""
        self._others: dict[str, float] = {}
        """Until when an image or a registry counts as having no checkpoint."""

    async def sources(self, pod: Pod, folder: Path) -> dict[str, RestoreSource]:
        """Return the checkpoint of each container whose image is one, fetched into a folder of the pod.

        Raises ImageError.
        """
        sources = {}
        restored = pod.metadata.annotations.get(RESTORED_CONTAINERS, "").split(",")
        for container in pod.every_container:
            mapped = Path(self._settings.image_root(container.image))
            try:
                place = mapped
                if mapped == Path("/"):
                    place = folder / "restore" / container.name
                    await self._fetch(pod, container.image, place, required=container.name in restored)
                metadata = read_metadata(place)
            except CheckpointError as error:
                raise ImageError(f'image "{container.image}": {error}') from None
            if metadata is not None:
                sources[container.name] = RestoreSource(place, metadata["image"])
            elif container.name in restored:
                raise ImageError(f'image "{container.image}" is no checkpoint; {_EXPECTED}')
        return sources

    async def _fetch(self, pod: Pod, name: str, target: Path, *, required: bool) -> None:
        """Unpack the checkpoint of a registry, if it is one and that was not done."""
        image = _registry_image(name)
        if image is None or (target / "checkpoint").exists():
            return
        host, local = image.repository.registry, _is_loopback(image.repository.registry)
        login = self._login(pod, host)
        required = required or local or login is not None
        if not required and any(self._others.get(key, 0.0) > time.monotonic() for key in (name, host)):
            return
        try:
            is_checkpoint = await self._download(image, login, target, local=local)
        except _PullError as error:
            if required:
                raise ImageError(f'failed to pull image "{name}": {error}') from None
            log.info("an image could not be looked at", image=name, error=str(error))
            self._remember(host)
            return
        if not is_checkpoint:
            self._remember(name)

    async def _download(self, image: Image, login: Login | None, target: Path, *, local: bool) -> bool:
        """Unpack an image if it is a checkpoint; loopback is that of the nodes, or else of the machine."""
        try:
            return await _download(image, login, target)
        except _PullError:
            if not local or self._host_socket is None:
                raise
        return await _run_in_network(self._host_socket, lambda: _download(image, login, target))

    def _login(self, pod: Pod, host: str) -> Login | None:
        """Return the login for a registry in the pod's imagePullSecrets."""
        for reference in pod.spec.image_pull_secrets:
            secret = self._find_secret(pod.metadata.namespace, reference.name)
            if secret is not None:
                data = {key: base64.b64encode(value).decode() for key, value in secret.data.items()}
                with contextlib.suppress(InvalidLoginError):
                    return read_login(data, host, named_only=True)
        return None

    def _remember(self, key: str) -> None:
        if len(self._others) >= _MAX_REMEMBERED:
            self._others.clear()
        self._others[key] = time.monotonic() + _REMEMBER_SECONDS


async def _download(image: Image, login: Login | None, target: Path) -> bool:
    """Unpack an image into `target` if it is a checkpoint; return whether it is."""
    from argosy.checkpoint.drivers.registry_http import RegistryError  # few agents need it

    try:
        return await _download_from_registry(image, login, target)
    except RegistryError as error:
        raise _PullError(str(error)) from error
    except TimeoutError as error:
        raise _PullError("the registry does not answer") from error


async def _download_from_registry(image: Image, login: Login | None, target: Path) -> bool:
    from argosy.checkpoint.drivers.registry import Registry

    async with Registry(image.repository.registry, login) as registry:
        async with asyncio.timeout(_MANIFEST_SECONDS):
            manifest = await registry.get_manifest(image)
        annotations = manifest.content.annotations or {}
        if not any(name in annotations for name in _ANNOTATIONS):
            return False
        if len(manifest.content.layers) != 1:
            raise CheckpointError(f"{len(manifest.content.layers)} layers; a checkpoint has one")
        layer = manifest.content.layers[0]
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        archive = target.with_name(f"{target.name}.tar")
        try:
            await registry.get_blob(image.repository, layer.digest, archive, layer.size)
            await asyncio.to_thread(unpack_checkpoint, archive, target)
        finally:
            archive.unlink(missing_ok=True)
    if read_metadata(target) is None:
        raise CheckpointError("the checkpoint is of another container runtime, which alone can restore it")
    return True


def _registry_image(name: str) -> Image | None:
    """Return an image if its name has a registry; `localhost` without a port is the name of none."""
    first, slash, _ = name.partition("/")
    if not slash or not ("." in first or ":" in first):
        return None
    try:
        return parse_image(name)
    except InvalidImageNameError:
        return None


def _is_loopback(registry: str) -> bool:
    host = registry.rpartition(":")[0] if ":" in registry else registry
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def _run_in_network(member: socket.socket, start: Callable[[], Coroutine[None, None, bool]]) -> bool:
    """Run a coroutine in the network to which a socket belongs, in a thread with a loop of its own."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[bool] = loop.create_future()

    def finish(value: bool, error: BaseException | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def run() -> None:
        value, failure = False, None
        try:
            namespace = fcntl.ioctl(member.fileno(), _NAMESPACE_OF_SOCKET)
            try:
                kernel.setns(namespace, kernel.NEW_NET)  # of this thread, and of those that it starts
            finally:
                os.close(namespace)
            value = asyncio.run(start())
        except Exception as error:
            failure = error
        loop.call_soon_threadsafe(finish, value, failure)

    threading.Thread(target=run, name="fetch-checkpoint", daemon=True).start()
    return await result

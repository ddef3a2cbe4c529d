"""Asks the kubelet of this node for checkpoints of containers.

The certificate of the kubelet is verified against the cluster's CA and that of the node, for the name of the
node or its address: kubelets that make their own certificate put only the name in it.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from argosy.checkpoint.archives import ContainerName
from argosy.engine.certificates import load_authority
from argosy.engine.kubeconfig import Connection
from argosy.wire.client import Client, Response
from argosy.wire.origin import Origin

TIMEOUT_SECONDS: Final = 300
MAX_BYTES: Final = 1 << 20
MAX_MESSAGE_CHARS: Final = 500


_NO_CONTAINER: Final = ContainerName("argosy-probe", "argosy-probe", "argosy-probe")


class KubeletError(Exception):
    """The kubelet did not make a checkpoint."""

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.is_temporary = temporary
        """Whether the same request may succeed later."""


class _Items(Struct):
    items: list[str] | None = None


class Kubelet:
    """A client of the kubelet of one node."""

    def __init__(self, connection: Connection, authority_file: Path | None = None) -> None:
        """Use the identity of a connection to the API server, and trust its CA and that in the file."""
        self._connection = connection
        self._authority_file = authority_file

    async def checkpoint(self, address: str, port: int, node: str, container: ContainerName) -> list[str]:
        """Return the paths of the archives of a container that goes on; raises KubeletError."""
        response = await self._ask(address, port, node, container)
        if response.status != 200:
            raise _rejection(response)
        try:
            return msgspec.json.decode(response.body, type=_Items).items or []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []  # the archive is looked for by its name

    async def checkpoint_problem(self, address: str, port: int, node: str) -> str:
        """Return why the kubelet makes no checkpoints; empty if it does.

        It is asked for one of a container that does not exist. Without the feature it has no such path.
        Raises KubeletError if that is not known now.
        """
        response = await self._ask(address, port, node, _NO_CONTAINER)
        if response.status in (401, 403) or b"page not found" in response.body.lower():
            return str(_rejection(response))
        if response.status not in (200, 404) and _rejection(response).is_temporary:
            raise _rejection(response)
        return ""

    async def _ask(self, address: str, port: int, node: str, container: ContainerName) -> Response:
        namespace, pod, name = container.namespace, container.pod, container.container
        target = f"/checkpoint/{namespace}/{pod}/{name}?timeout={TIMEOUT_SECONDS}"
        host = f"[{address}]" if ":" in address else address
        try:
            return await self._post(f"https://{host}:{port}", target, (node, address))
        except TimeoutError as error:
            raise KubeletError("the kubelet did not answer in time", temporary=True) from error
        except (OSError, ValueError) as error:
            verified = not isinstance(error, ssl.SSLCertVerificationError)
            raise KubeletError(f"kubelet at {host}:{port}: {error}", temporary=verified) from error

    async def _post(self, url: str, target: str, names: tuple[str, ...]) -> Response:
        """Send the request; the certificate may be for any of the names."""
        identity = await self._connection.credentials.current()
        context = await asyncio.to_thread(self._tls)
        for name in names:
            client = Client(Origin.from_url(url, server_name=name))
            try:
                return await client.send(
                    "POST",
                    target,
                    {**identity.headers, "Accept": "application/json"},
                    b"",
                    context=context,
                    timeout=TIMEOUT_SECONDS + 10,
                    limit=MAX_BYTES,
                )
            except ssl.SSLCertVerificationError as error:
                if name == names[-1] or error.verify_code not in _OTHER_NAME:
                    raise
            finally:
                await client.close()
        raise AssertionError("there is at least one name")

    def _tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        bundle = self._connection.certificate_authority or b""
        if self._authority_file is not None and self._authority_file.exists():
            bundle += b"\n" + self._authority_file.read_bytes()
        if bundle:
            load_authority(context, bundle)
        else:
            context.load_default_certs()
        return context


_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate that is valid, but for another host name or address."""


def _rejection(response: Response) -> KubeletError:
    text = response.body[:MAX_MESSAGE_CHARS].decode("utf-8", "replace").strip()
    shown = "".join(char if char.isprintable() else " " for char in text)
    if response.status in (401, 403):
        return KubeletError(f"the kubelet requires the permission to create nodes/checkpoint: {shown}")
    if response.status == 404:
        return KubeletError(f"the kubelet knows no such container, or makes no checkpoints: {shown}")
    temporary = response.status in (429, 502, 503, 504)
    return KubeletError(f"the kubelet answered with status {response.status}: {shown}", temporary=temporary)

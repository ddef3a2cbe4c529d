"""Reads the certificates of the authorities by which a registry is trusted, instead of those of the system.

They are in the Secret with the login of the registry, or else in a file that an administrator names. The file
is read for each connection, so that another one counts without a restart.
"""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.registry_login import InvalidLoginError, decode_value
from argosy.engine.certificates import check_authority

AUTHORITY: Final = "ca.crt"
"""The key of a Secret with the certificates."""


def read_authority(data: Mapping[str, str]) -> bytes | None:
    """Return the certificates in base64 data, None if there are none; raises InvalidLoginError."""
    bundle = decode_value(data, AUTHORITY) if AUTHORITY in data else b""
    if not bundle:
        return None
    try:
        check_authority(bundle)
    except ssl.SSLError as error:
        raise InvalidLoginError(f"key {AUTHORITY!r}: {error}") from None
    return bundle


async def read_authority_file(file: Path) -> bytes:
    """Return the certificates that the file of the option `--registry-ca` has now.

    While it is missing or has none, registries count as unreachable: it may be there soon.
    """

    def read() -> bytes:
        bundle = file.read_bytes()
        check_authority(bundle)
        return bundle

    try:
        return await asyncio.to_thread(read)
    except OSError as error:  # includes ssl.SSLError
        raise RegistryError("Unreachable", f"--registry-ca {file}: {error.strerror}") from error

"""Loads PEM certificates: CA bundles, and client certificates with their keys."""

import re
import ssl
import tempfile
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

PEM_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class Certificate(Struct, frozen=True):
    """A client certificate with its key, both PEM."""

    certificate: bytes
    key: bytes


def load_authority(context: ssl.SSLContext, bundle: bytes) -> None:
    """Trust the certificates of a PEM bundle. Text between them is ignored, in any encoding.

    As in Go, a certificate that cannot be parsed is skipped, unless there is no other.
    """
    last_error: ssl.SSLError | ValueError | None = None
    for block in PEM_CERTIFICATE.findall(bundle):
        try:
            context.load_verify_locations(cadata=block.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as error:
            last_error = error
    if not context.cert_store_stats()["x509"]:
        raise _ssl_error(f"no valid PEM certificate: {last_error or 'none found'}")


def load_certificate(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Use a client certificate with its key, through a temporary file: Python reads them only from files."""
    with tempfile.TemporaryDirectory(prefix="argosy-") as folder:
        path = Path(folder) / "identity.pem"
        path.write_bytes(certificate.certificate + b"\n" + certificate.key)
        try:
            context.load_cert_chain(path, password=_reject_encrypted_key)
        except ValueError as error:
            raise _ssl_error(str(error)) from error


def check_authority(bundle: bytes) -> None:
    """Raise `ssl.SSLError` if no certificate of a bundle is valid."""
    load_authority(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), bundle)


def check_certificate(certificate: Certificate) -> None:
    """Raise `ssl.SSLError` if certificate or key is invalid, or they do not match."""
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)


def _ssl_error(problem: str) -> ssl.SSLError:
    return ssl.SSLError(ssl.SSL_ERROR_SSL, problem)


def _reject_encrypted_key() -> NoReturn:
    """Without this callback OpenSSL would prompt for the password on the terminal."""
    raise ValueError("encrypted keys are not supported")

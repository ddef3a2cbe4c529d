"""Certificates in PEM: an authority's bundle, and a client's certificate with its key."""

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
    """Trust the certificates of a PEM bundle; whatever stands between them is a comment, in any encoding.

    As in Go a certificate that cannot be read is passed over, unless there is no other.
    """
    problem: ssl.SSLError | ValueError | None = None
    for block in PEM_CERTIFICATE.findall(bundle):
        try:
            context.load_verify_locations(cadata=block.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as error:
            problem = error
    if not context.cert_store_stats()["x509"]:
        raise _unusable(f"no PEM certificate that can be read: {problem or 'none found'}")


def load_certificate(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Use a client certificate with its key. Python reads them from a file only: one that is gone at once."""
    with tempfile.TemporaryDirectory(prefix="argosy-") as folder:
        path = Path(folder) / "identity.pem"
        path.write_bytes(certificate.certificate + b"\n" + certificate.key)
        try:
            context.load_cert_chain(path, password=_refuse_password)
        except ValueError as error:
            raise _unusable(str(error)) from error


def check_authority(bundle: bytes) -> None:
    """`ssl.SSLError` if no certificate of a bundle can be read."""
    load_authority(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), bundle)


def check_certificate(certificate: Certificate) -> None:
    """`ssl.SSLError` if certificate and key cannot be read or do not belong together."""
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)


def _unusable(problem: str) -> ssl.SSLError:
    return ssl.SSLError(ssl.SSL_ERROR_SSL, problem)


def _refuse_password() -> NoReturn:
    """Without this OpenSSL would ask for the key's password on the terminal, and wait."""
    raise ValueError("the key is encrypted, which is not supported")

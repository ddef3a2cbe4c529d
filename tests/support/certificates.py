"""A throw-away certificate authority."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from argosy.engine.certificates import Certificate

Key = ec.EllipticCurvePrivateKey

LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


class Authority:
    """Signs certificates that are valid for an hour."""

    def __init__(self, name: str = "test") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._sign(self.name, self.key, None)

    @staticmethod
    def load(certificate: bytes, key: bytes) -> "Authority":
        """The authority of these PEM files."""
        authority = Authority()
        loaded = serialization.load_pem_private_key(key, password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        authority.key = loaded
        authority.name = x509.load_pem_x509_certificate(certificate).subject
        authority.certificate = certificate
        return authority

    def issue(self, common_name: str, *names: x509.GeneralName, organization: str = "") -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        signed = self._sign(x509.Name(attributes), key, names)
        return Certificate(signed, private_key(key))

    def _sign(self, name: x509.Name, key: Key, names: tuple[x509.GeneralName, ...] | None) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


def private_key(key: Key, password: bytes | None = None) -> bytes:
    """PEM, encrypted if there is a password."""
    secret = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)

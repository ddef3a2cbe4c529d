"""Tests for the certificates of the components of a cluster."""

import ipaddress
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from argosy.local.apiserver.pki import ensure_pki
from tests.support.cluster import pki
from tests.support.cluster.pki import Identity


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    ensure_pki(tmp_path)
    return tmp_path / "pki"


def test_certificate_has_the_name_and_groups_of_the_component(keys: Path) -> None:
    pki.issue(keys, "node-1", Identity("system:node:node-1", ("system:nodes",)))
    certificate = x509.load_pem_x509_certificate((keys / "node-1.crt").read_bytes())
    authority = x509.load_pem_x509_certificate((keys / "ca.crt").read_bytes())
    certificate.verify_directly_issued_by(authority)
    subject = {attribute.oid: attribute.value for attribute in certificate.subject}
    assert subject == {NameOID.ORGANIZATION_NAME: "system:nodes", NameOID.COMMON_NAME: "system:node:node-1"}
    assert _uses(certificate) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert (keys / "node-1.key").stat().st_mode & 0o077 == 0


def test_only_certificates_with_an_address_are_server_certificates(keys: Path) -> None:
    pki.issue(keys, "node-1", Identity("system:node:node-1", (), ("10.0.0.1",)))
    certificate = x509.load_pem_x509_certificate((keys / "node-1.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.1")]
    assert ExtendedKeyUsageOID.SERVER_AUTH in _uses(certificate)


def test_existing_certificate_is_not_issued_again(keys: Path) -> None:
    pki.issue(keys, "coredns", Identity("system:coredns"))
    first = (keys / "coredns.crt").read_bytes()
    pki.issue(keys, "coredns", Identity("system:coredns"))
    assert (keys / "coredns.crt").read_bytes() == first


def test_kubeconfig_contains_its_keys_and_is_private(keys: Path) -> None:
    pki.issue(keys, "coredns", Identity("system:coredns"))
    path = pki.kubeconfig(keys, "coredns", "https://10.0.0.1:6443")
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.0.0.1:6443"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert path.stat().st_mode & 0o077 == 0


def _uses(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)

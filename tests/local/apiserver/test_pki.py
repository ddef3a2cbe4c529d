import datetime
import ssl
from pathlib import Path

import yaml
from cryptography import x509

from argosy.local.apiserver.kubeconfig import write_kubeconfig
from argosy.local.apiserver.pki import ensure_pki


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "pki").iterdir()}


def test_existing_files_are_kept(tmp_path: Path) -> None:
    ensure_pki(tmp_path, ["10.96.0.1"])
    before = contents(tmp_path)
    assert set(before) == {"ca.crt", "ca.key", "apiserver.crt", "apiserver.key", "sa.key"}
    ensure_pki(tmp_path, ["10.96.0.1"])
    assert contents(tmp_path) == before


def test_certificate_for_a_new_address_has_the_same_issuer(tmp_path: Path) -> None:
    ensure_pki(tmp_path)
    before = contents(tmp_path)
    ensure_pki(tmp_path, ["192.0.2.7"])
    after = contents(tmp_path)
    assert after["ca.crt"] == before["ca.crt"]
    assert after["sa.key"] == before["sa.key"]
    certificate = x509.load_pem_x509_certificate(after["apiserver.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "192.0.2.7" in [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pki" / "apiserver.crt", tmp_path / "pki" / "apiserver.key")


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    ensure_pki(tmp_path)
    write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", tmp_path / "pki" / "ca.crt", "t")
    for path in [*(tmp_path / "pki").iterdir(), tmp_path / "kubeconfig"]:
        assert path.stat().st_mode & 0o077 == 0


def test_kubeconfig_contains_the_socket(tmp_path: Path) -> None:
    ensure_pki(tmp_path)
    socket = tmp_path / "apiserver.sock"
    write_kubeconfig(tmp_path / "config", "https://127.0.0.1:1", tmp_path / "pki" / "ca.crt", "t", socket)
    cluster = yaml.safe_load((tmp_path / "config").read_text())["clusters"][0]["cluster"]
    assert cluster["extensions"] == [{"name": "argosy.dev/unix-socket", "extension": {"path": str(socket)}}]


def test_certificates_are_valid_if_the_clock_is_set_back(tmp_path: Path) -> None:
    ensure_pki(tmp_path)
    years_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=5 * 365)
    for name in ("ca.crt", "apiserver.crt"):
        certificate = x509.load_pem_x509_certificate((tmp_path / "pki" / name).read_bytes())
        assert certificate.not_valid_before_utc < years_ago

"""Certificates in Secrets and files by which registries are trusted."""

from pathlib import Path

import pytest

from argosy.checkpoint.drivers.registry_authority import read_authority, read_authority_file
from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.registry_login import InvalidLoginError, encoded
from tests.support.certificates import Authority


def test_certificates_of_a_secret_are_those_of_ca_crt_if_it_has_any() -> None:
    certificate = Authority().certificate
    assert read_authority(encoded({"username": b"u"})) is None
    assert read_authority(encoded({"ca.crt": b""})) is None
    assert read_authority(encoded({"ca.crt": certificate})) == certificate
    with pytest.raises(InvalidLoginError, match=r"^key 'ca\.crt': no valid PEM certificate: none found$"):
        read_authority(encoded({"ca.crt": b"\xff"}))
    with pytest.raises(InvalidLoginError, match=r"^key 'ca\.crt' is not base64$"):
        read_authority({"ca.crt": "%"})


async def test_file_is_named_with_what_is_wrong_with_it(tmp_path: Path) -> None:
    garbage, folder, text = tmp_path / "garbage", tmp_path / "folder", tmp_path / "text"
    garbage.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    text.write_text("yes")
    folder.mkdir()
    for file, problem in (
        (garbage, "no valid PEM certificate: .+"),
        (text, "no valid PEM certificate: none found"),
        (folder, "Is a directory"),
        (tmp_path / "gone", "No such file or directory"),
    ):
        with pytest.raises(RegistryError, match=f"^Unreachable: --registry-ca {file}: {problem}$") as raised:
            await read_authority_file(file)
        assert raised.value.is_temporary

from pathlib import Path

import pytest

from argosy.engine.certificates import Certificate
from argosy.engine.credentials import FileCredentials, Identity
from argosy.engine.errors import Unauthorized
from tests.support.certificates import Authority
from tests.support.manual_clock import ManualClock


async def test_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one\n")
    credentials = FileCredentials(token=path, clock=clock)
    assert (await credentials.current()).token == "one"
    path.write_text("two")
    clock.advance(30)
    assert (await credentials.current()).token == "one"
    clock.advance(31)
    assert (await credentials.current()).token == "two"


async def test_token_file_is_read_again_at_once_after_a_rejection(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = FileCredentials(token=path, clock=ManualClock())
    rejected = await credentials.current()
    assert not credentials.refresh(rejected)
    path.write_text("two")
    assert credentials.refresh(rejected)
    assert (await credentials.current()).token == "two"


async def test_missing_token_file_keeps_the_last_token(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one")
    credentials = FileCredentials(token=path, clock=clock)
    await credentials.current()
    path.unlink()
    clock.advance(100)
    assert (await credentials.current()).token == "one"


async def test_token_file_that_never_existed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match="cannot read token file"):
        await FileCredentials(token=tmp_path / "none").current()


async def test_default_token_is_used_until_the_token_file_exists(
    tmp_path: Path,
) -> None:
    path, clock = tmp_path / "token", ManualClock()
    credentials = FileCredentials(token=path, default=Identity(token="written"), clock=clock)
    assert (await credentials.current()).token == "written"
    path.write_text("read")
    clock.advance(100)
    assert (await credentials.current()).token == "read"


async def test_rejection_of_an_already_replaced_token_keeps_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = FileCredentials(token=path, clock=ManualClock())
    old = await credentials.current()
    path.write_text("two")
    assert credentials.refresh(old)
    assert credentials.refresh(old)
    assert not credentials.refresh(await credentials.current())


class Files:
    """The files of a client certificate and its key."""

    def __init__(self, folder: Path) -> None:
        self.paths = folder / "client.crt", folder / "client.key"

    def write(self, certificate: Certificate) -> None:
        self.paths[0].write_bytes(certificate.certificate)
        self.paths[1].write_bytes(certificate.key)


async def test_certificate_files_are_read_again_after_a_minute(tmp_path: Path) -> None:
    authority, clock, files = Authority(), ManualClock(), Files(tmp_path)
    first, second = authority.issue("one"), authority.issue("two")
    files.write(first)
    credentials = FileCredentials(certificate=files.paths, clock=clock)
    assert (await credentials.current()).certificate == first
    files.write(second)
    clock.advance(61)
    assert (await credentials.current()).certificate == second


async def test_certificate_files_are_read_again_at_once_after_a_rejection(
    tmp_path: Path,
) -> None:
    authority, files = Authority(), Files(tmp_path)
    files.write(authority.issue("one"))
    credentials = FileCredentials(certificate=files.paths, clock=ManualClock())
    rejected = await credentials.current()
    files.write(second := authority.issue("two"))
    assert credentials.refresh(rejected)
    assert (await credentials.current()).certificate == second


async def test_new_certificate_is_used_only_with_its_matching_key(tmp_path: Path) -> None:
    authority, clock, files = Authority(), ManualClock(), Files(tmp_path)
    first, second = authority.issue("one"), authority.issue("two")
    files.write(first)
    credentials = FileCredentials(certificate=files.paths, clock=clock)
    await credentials.current()
    files.paths[0].write_bytes(second.certificate)
    clock.advance(61)
    assert (await credentials.current()).certificate == first
    files.paths[1].write_bytes(second.key)
    clock.advance(61)
    assert (await credentials.current()).certificate == second


async def test_certificate_files_that_never_existed_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match="cannot use"):
        await FileCredentials(certificate=Files(tmp_path).paths).current()

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from argosy.engine.credentials import ExecPlugin, TokenFile
from argosy.engine.errors import Unauthorized
from argosy.testing.manualclock import ManualClock


async def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one\n")
    credentials = TokenFile(path, clock=clock)
    assert (await credentials.current()).token == "one"
    path.write_text("two")
    clock.advance(30)
    assert (await credentials.current()).token == "one"
    clock.advance(31)
    assert (await credentials.current()).token == "two"


async def test_a_token_file_is_read_again_at_once_when_the_token_was_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFile(path, clock=ManualClock())
    await credentials.current()
    path.write_text("two")
    assert credentials.refresh()
    assert (await credentials.current()).token == "two"


async def test_a_token_file_that_vanishes_for_a_moment_keeps_its_last_token(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", ManualClock()
    path.write_text("one")
    credentials = TokenFile(path, clock=clock)
    await credentials.current()
    path.unlink()
    clock.advance(100)
    assert (await credentials.current()).token == "one"


async def test_a_token_file_that_never_was_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match="cannot read token file"):
        await TokenFile(tmp_path / "none").current()


def plugin(folder: Path, clock: ManualClock, status: dict[str, object]) -> ExecPlugin:
    """A plugin that gives this status and counts its runs in a file."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (folder / "answer").write_bytes(msgspec.json.encode(answer))
    script = folder / "plugin"
    script.write_text(f"#!/bin/sh\necho $KUBERNETES_EXEC_INFO >> {folder}/runs\ncat {folder}/answer\n")
    script.chmod(0o755)
    return ExecPlugin(str(script), cluster={"server": "https://h"}, clock=clock)


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().splitlines()


async def test_an_exec_plugin_runs_again_when_what_it_gave_is_about_to_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    expires = (clock.now() + timedelta(minutes=5)).isoformat()
    credentials = plugin(tmp_path, clock, {"token": "t", "expirationTimestamp": expires})
    for _ in range(3):
        assert (await credentials.current()).token == "t"
    assert len(runs(tmp_path)) == 1
    clock.advance(295)
    await credentials.current()
    assert len(runs(tmp_path)) == 2


async def test_an_exec_plugin_is_told_which_cluster_it_is_for(tmp_path: Path) -> None:
    await plugin(tmp_path, ManualClock(), {"token": "t"}).current()
    info = msgspec.json.decode(runs(tmp_path)[0])
    assert info["kind"] == "ExecCredential"
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://h"}}


async def test_an_exec_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    status: dict[str, object] = {"clientCertificateData": "c", "clientKeyData": "k"}
    identity = await plugin(tmp_path, ManualClock(), status).current()
    assert identity.certificate is not None
    assert identity.certificate.certificate == b"c"


async def test_a_token_that_was_refused_makes_the_plugin_run_again(tmp_path: Path) -> None:
    credentials = plugin(tmp_path, ManualClock(), {"token": "t"})
    await credentials.current()
    assert credentials.refresh()
    await credentials.current()
    assert len(runs(tmp_path)) == 2


BROKEN = {
    "it fails": ("exit 3", "exit code 3"),
    "it prints nonsense": ("echo hello", "not an ExecCredential"),
    "it gives nothing": ("echo '{}'", "neither token nor certificate"),
    "it speaks another version": ('echo \'{"apiVersion": "x/v9"}\'', "speaks x/v9"),
    "it hangs": ("exec sleep 60", "no answer in 0.2 s"),
}


@pytest.mark.parametrize("sentence", BROKEN)
async def test_a_broken_plugin_is_named_with_what_it_did(sentence: str, tmp_path: Path) -> None:
    body, want = BROKEN[sentence]
    script = tmp_path / "plugin"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    with pytest.raises(Unauthorized, match=want):
        await ExecPlugin(str(script), timeout=0.2 if "hangs" in sentence else 30).current()

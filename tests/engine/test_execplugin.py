from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from argosy.engine.errors import Unauthorized
from argosy.engine.execplugin import ExecPlugin
from tests.support.certificates import Authority
from tests.support.manual_clock import ManualClock


def own_stdin() -> str:
    return str(Path("/proc/self/fd/0").readlink())


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
    given = Authority().issue("me")
    status: dict[str, object] = {
        "clientCertificateData": given.certificate.decode(),
        "clientKeyData": given.key.decode(),
    }
    identity = await plugin(tmp_path, ManualClock(), status).current()
    assert identity.certificate == given


async def test_a_token_that_was_refused_makes_the_plugin_run_again(tmp_path: Path) -> None:
    credentials = plugin(tmp_path, ManualClock(), {"token": "t"})
    refused = await credentials.current()
    assert credentials.refresh(refused)
    await credentials.current()
    assert len(runs(tmp_path)) == 2


async def test_a_late_refusal_of_an_old_token_does_not_run_the_plugin_again(tmp_path: Path) -> None:
    clock = ManualClock()
    credentials = plugin(tmp_path, clock, {"token": "old"})
    old = await credentials.current()
    plugin(tmp_path, clock, {"token": "new"})
    for _ in range(3):
        assert credentials.refresh(old)
        assert (await credentials.current()).token == "new"
    assert len(runs(tmp_path)) == 2


async def test_an_interactive_plugin_has_standard_input_and_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\necho $KUBERNETES_EXEC_INFO > {tmp_path}/info\n"
        f"readlink /proc/$$/fd/0 > {tmp_path}/stdin\n"
        """echo '{"status": {"token": "t"}}'\n"""
    )
    script.chmod(0o755)
    assert (await ExecPlugin(str(script), interactive=True).current()).token == "t"
    assert msgspec.json.decode((tmp_path / "info").read_bytes())["spec"] == {"interactive": True}
    assert (tmp_path / "stdin").read_text().strip() == own_stdin()


BROKEN = {
    "it fails": ("exit 3", "exit code 3"),
    "it prints nonsense": ("echo hello", "not an ExecCredential"),
    "it gives nothing": ("echo '{}'", "neither token nor certificate"),
    "it speaks another version": ('echo \'{"apiVersion": "x/v9"}\'', "speaks x/v9"),
    "it gives a certificate without key": (
        'echo \'{"status": {"clientCertificateData": "c"}}\'',
        "its certificate and key cannot be used",
    ),
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

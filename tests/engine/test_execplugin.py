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
    """Return a plugin that prints this status and records its runs in a file."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (folder / "answer").write_bytes(msgspec.json.encode(answer))
    script = folder / "plugin"
    script.write_text(f"#!/bin/sh\necho $KUBERNETES_EXEC_INFO >> {folder}/runs\ncat {folder}/answer\n")
    script.chmod(0o755)
    return ExecPlugin(str(script), cluster={"server": "https://h"}, clock=clock)


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().splitlines()


async def test_plugin_runs_again_shortly_before_its_credentials_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    expires = (clock.now() + timedelta(minutes=5)).isoformat()
    credentials = plugin(tmp_path, clock, {"token": "t", "expirationTimestamp": expires})
    for _ in range(3):
        assert (await credentials.current()).token == "t"
    assert len(runs(tmp_path)) == 1
    clock.advance(295)
    await credentials.current()
    assert len(runs(tmp_path)) == 2


async def test_plugin_gets_the_cluster_in_kubernetes_exec_info(tmp_path: Path) -> None:
    await plugin(tmp_path, ManualClock(), {"token": "t"}).current()
    info = msgspec.json.decode(runs(tmp_path)[0])
    assert info["kind"] == "ExecCredential"
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://h"}}


async def test_plugin_may_return_a_certificate(tmp_path: Path) -> None:
    certificate = Authority().issue("me")
    status: dict[str, object] = {
        "clientCertificateData": certificate.certificate.decode(),
        "clientKeyData": certificate.key.decode(),
    }
    identity = await plugin(tmp_path, ManualClock(), status).current()
    assert identity.certificate == certificate


async def test_plugin_runs_again_after_its_token_was_rejected(tmp_path: Path) -> None:
    credentials = plugin(tmp_path, ManualClock(), {"token": "t"})
    rejected = await credentials.current()
    assert credentials.refresh(rejected)
    await credentials.current()
    assert len(runs(tmp_path)) == 2


async def test_rejection_of_an_already_replaced_token_does_not_run_the_plugin(tmp_path: Path) -> None:
    clock = ManualClock()
    credentials = plugin(tmp_path, clock, {"token": "old"})
    old = await credentials.current()
    plugin(tmp_path, clock, {"token": "new"})
    for _ in range(3):
        assert credentials.refresh(old)
        assert (await credentials.current()).token == "new"
    assert len(runs(tmp_path)) == 2


async def test_interactive_plugin_inherits_standard_input(tmp_path: Path) -> None:
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
    "exit code 3: error has the exit code": ("exit 3", "exit code 3"),
    "output is not JSON: error says so": ("echo hello", "not an ExecCredential"),
    "neither token nor certificate: error says so": ("echo '{}'", "neither token nor certificate"),
    "another apiVersion: error names it": ('echo \'{"apiVersion": "x/v9"}\'', "its output is x/v9"),
    "certificate without key: error says so": (
        'echo \'{"status": {"clientCertificateData": "c"}}\'',
        "invalid certificate or key",
    ),
    "plugin hangs: times out": ("exec sleep 60", "timed out after 0.2 s"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_failing_plugin_raises_unauthorized(case: str, tmp_path: Path) -> None:
    body, want = BROKEN[case]
    script = tmp_path / "plugin"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    with pytest.raises(Unauthorized, match=want):
        await ExecPlugin(str(script), timeout=0.2 if "hangs" in case else 30).current()

"""What the agent finds out on its host, with a real CRIU and with commands that fail."""

import os
from pathlib import Path

import pytest

from argosy.agent.host_probe import probe_criu, restores_images
from argosy.checkpoint.drivers import criu
from tests.support.criu import require_criu
from tests.support.host_command import host_command


@pytest.mark.root
async def test_script_finds_out_the_same_as_a_probe_on_the_host_itself(tmp_path: Path) -> None:
    require_criu()
    command = criu.find_command()
    assert command is not None
    wrapper = tmp_path / "criu"
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
    wrapper.chmod(0o755)
    on_host = await probe_criu(["env", f"PATH={tmp_path}:{os.environ['PATH']}"])
    directly = criu.probe()
    assert on_host.problem == directly.problem == ""
    assert on_host.users_problem == directly.users_problem


@pytest.mark.parametrize("command", [("/does/not/exist",), ("false",)])
async def test_host_on_which_nothing_can_be_tried_is_not_judged(command: tuple[str, ...]) -> None:
    with pytest.raises(OSError):
        await probe_criu(command)


RESTORES = "enable_experimental_restore_via_create"
CONFIGURATIONS = {
    "containerd that restores": ("containerd://2.2.0", f"[a]\n  {RESTORES} = true\n", True),
    "containerd that does not": ("containerd://2.2.0", f"{RESTORES} = false", False),
    "containerd with a comment": ("containerd://2.2.0", f"# {RESTORES} = true", False),
    "CRI-O with CRIU": ("cri-o://1.33.0", "[crio.runtime]\nenable_criu_support = true\n", True),
    "CRI-O without": ("cri-o://1.33.0", "enable_criu_support = false", False),
    "local control plane": ("argosy://1.0", "", True),
    "runtime that is not known": ("docker://27.0", "enable_criu_support = true", False),
}


@pytest.mark.parametrize(("runtime", "config", "want"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
async def test_configurations_of_container_runtimes(
    runtime: str, config: str, want: bool, tmp_path: Path
) -> None:
    assert await restores_images(runtime, host_command(tmp_path, "", config)) == want
    assert await restores_images(runtime, ["/does/not/exist"]) == (want and runtime.startswith("argosy"))

"""What the agent finds out on its host, with a real CRIU and with commands that fail."""

import os
import sys
from pathlib import Path

import pytest
import uvloop

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
CRIU_IN_CRIO = "[crio.runtime]\nenable_criu_support = true\n"


def crio_level(level: str) -> str:
    """Return what a newer CRI-O answers."""
    return f"{CRIU_IN_CRIO}\n[crio.checkpoint_restore]\ncontainer_level_enabled = {level}\n"


CONFIGURATIONS = {
    "containerd that restores: it does": ("containerd://2.2.0", f"[a]\n  {RESTORES} = true\n", True),
    "containerd that says false: not known": ("containerd://2.2.0", f"{RESTORES} = false", None),
    "containerd with a comment: not known": ("containerd://2.2.0", f"# {RESTORES} = true", None),
    "CRI-O with CRIU: it does": ("cri-o://1.33.0", CRIU_IN_CRIO, True),
    "CRI-O without CRIU: not known": ("cri-o://1.33.0", "enable_criu_support = false", None),
    "CRI-O of level checkpoint_restore: it does": (
        "cri-o://1.34.14",
        crio_level('"checkpoint_restore"'),
        True,
    ),
    "CRI-O that knows nothing but levels: it does": (
        "cri-o://1.40.0",
        'container_level_enabled = "checkpoint_restore"',
        True,
    ),
    "CRI-O with CRIU disabled, of level checkpoint_restore: not known": (
        "cri-o://1.34.14",
        crio_level('"checkpoint_restore"').replace("true", "false"),
        None,
    ),
    "CRI-O of level checkpoint_only: it does not": (
        "cri-o://1.34.14",
        crio_level('"checkpoint_only"'),
        False,
    ),
    "CRI-O of level none: it does not": ("cri-o://1.36.6", crio_level("'none' # set by us"), False),
    "CRI-O with a level in a comment: it does": (
        "cri-o://1.33.0",
        f'{CRIU_IN_CRIO}# container_level_enabled = "checkpoint_only"\n',
        True,
    ),
    "CRI-O that does not know levels and has none: not known": ("cri-o://1.28.0", "", None),
    "local control plane: it does": ("argosy://1.0", "", True),
    "runtime that is not known: not known": ("docker://27.0", CRIU_IN_CRIO, None),
}


@pytest.mark.parametrize(("runtime", "config", "want"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
async def test_configurations_of_container_runtimes(
    runtime: str, config: str, want: bool | None, tmp_path: Path
) -> None:
    assert await restores_images(runtime, host_command(tmp_path, "", config)) is want
    without_host = True if runtime.startswith("argosy") else None
    assert await restores_images(runtime, ["/does/not/exist"]) is without_host


OPEN_FILES = """
import os
import sys
files = {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
print("problem=" + " ".join(sorted(files - {"0", "1", "2"})))
"""


def test_processes_on_the_host_get_no_files_of_the_agent() -> None:
    """With uvloop, too: CRIU cannot dump a process with files of another container."""
    found = uvloop.run(probe_criu([sys.executable, "-c", OPEN_FILES]))
    assert found.problem == ""

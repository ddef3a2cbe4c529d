"""Tests that what a pod writes stays in the pod, whatever is mounted on the host.

The pods run as an unprivileged user, on a machine (a mount namespace of the test's own) that has a disk
mounted below a top-level folder. Files there belong to that user: only the mounts protect them.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.rootless import NOBODY, Python, python_path
from tests.support.runspecs import Stage, container_config, finished, run_spec

pytestmark = pytest.mark.root

# /mnt is a file system that the user owns, and /mnt/disk another one below it.
MACHINE = f"""
import os, sys
from pathlib import Path
from argosy.local.node import kernel
kernel.unshare(kernel.NEW_MOUNT)
kernel.mount("none", "/", flags=kernel.PRIVATE | kernel.RECURSIVE)
for place in ("/mnt", "/mnt/disk", "/srv"):
    Path(place).mkdir(exist_ok=True)
    kernel.mount("tmpfs", place, "tmpfs", 0, "mode=777")
    file = Path(place, "checkpoint")
    file.write_text("of the host")
    os.chown(file, {NOBODY}, {NOBODY})
before = os.fork()
if before:
    _, status = os.waitpid(before, 0)
    for place in ("/mnt", "/mnt/disk", "/srv"):
        print(place, Path(place, "checkpoint").read_text(), *sorted(os.listdir(place)))
    sys.exit(os.waitstatus_to_exitcode(status))
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
os.chdir("/")
os.execvp(sys.argv[1], sys.argv[1:])
"""

POD = """
import json, sys
from pathlib import Path
from argosy.local.node import namespace_holder, rootfs
from argosy.local.node.logs import log_path, read_lines
from tests.support.runspecs import container_config, finished, run_spec, stage

folder = Path(sys.argv[1])
try:
    namespace_holder.enter(namespace_holder.PendingHolder(folder, rootless=True).wait(), rootless=True)
    notes = rootfs.rootless_notes(folder, ["/home", "/root"])
    volume = folder / "volume"
    volume.mkdir()
    script = (
        "for f in /mnt/checkpoint /mnt/disk/checkpoint /srv/checkpoint; do cat $f; echo pod > $f; done; "
        "touch /mnt/new /mnt/disk/new /srv/new; echo data > /mnt/volume/written; cat /etc/hostname"
    )
    with stage(folder) as pods:
        mounts = [{"source": str(volume), "target": "/mnt/volume", "read_only": False}]
        runspec = run_spec(
            container_config("main", script, mounts=mounts), rootless=True, hidden=["/home", "/root"]
        )
        place = pods.run(runspec)
        state = finished(place)
        text = b"".join(l.format(False) for l in read_lines(log_path(place, "main", 0))).decode()
        written = (volume / "written").exists()
        print(json.dumps({"notes": notes, "text": text, "written": written,
                          "ended": state["containers"]["main"]["ended"]}))
finally:
    namespace_holder.stop(folder)
"""

NO_OVERLAY = """
from argosy.local.node import kernel
real = kernel.mount
def mount(source, target, kind="", flags=0, data=""):
    if kind == "overlay":
        raise OSError(19, "No such device")
    real(source, target, kind, flags, data)
kernel.mount = mount
"""
NO_MOUNT_SETATTR = """
from argosy.local.node import kernel
def missing(target, flags):
    raise OSError(38, "Function not implemented")
kernel.set_mount_attributes = missing
"""
NOT_READ_ONLY = """
from argosy.local.node import kernel
def impossible(target, flags, proc="/proc"):
    if target.endswith("/root/mnt"):
        raise OSError(1, "Operation not permitted")
kernel.restrict_mount = impossible
"""

KERNELS = {
    "overlay in user namespaces: only unsupported folders are read-only": (
        "",
        ["read-only in pods, as the kernel cannot overlay them: /mnt"],
        3,
    ),
    "no overlay in user namespaces: writes stay in the pod": (NO_OVERLAY, [], 3),
    "neither overlay nor mount_setattr: writes stay in the pod": (NO_OVERLAY + NO_MOUNT_SETATTR, [], 3),
    "mount that cannot be made read-only: hidden": (
        NOT_READ_ONLY,
        ["hidden in pods, as the kernel cannot overlay them: /mnt"],
        1,
    ),
}


class Outcome(NamedTuple):
    host: list[str]
    pod: dict[str, object]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ay-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run(python: Python, folder: Path, patch: str) -> Outcome:
    """Run the pod on a kernel that `patch` makes of this one."""
    (folder / "sitecustomize.py").write_text(patch)
    state = folder / "state"
    state.mkdir()
    os.chown(state, NOBODY, NOBODY)
    environment = python.environment | {"PYTHONPATH": f"{folder}:{python_path()}"}
    done = subprocess.run(
        [sys.executable, "-c", MACHINE, python.program, "-c", POD, str(state)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *lines, last = sorted(done.stdout.splitlines())
    return Outcome(lines, json.loads(last))


@pytest.mark.parametrize("kernel", KERNELS)
def test_writes_of_a_rootless_pod_do_not_reach_the_host(kernel: str, folder: Path) -> None:
    python = Python.of_nobody()
    if python is None:
        pytest.skip("no Python with our dependencies that an unprivileged user may run")
    patch, want_notes, want_readable = KERNELS[kernel]
    outcome = run(python, folder, patch)
    assert outcome.host == [
        "/mnt of the host checkpoint disk",
        "/mnt/disk of the host checkpoint",
        "/srv of the host checkpoint",
    ]
    ended = outcome.pod["ended"]
    assert isinstance(ended, dict), outcome.pod
    assert ended["exit_code"] == 0, outcome.pod
    assert outcome.pod["written"], "a volume mounted in a read-only folder is writable"
    assert str(outcome.pod["text"]).count("of the host") == want_readable
    notes = outcome.pod["notes"]
    assert isinstance(notes, list)
    if want_notes:
        assert notes == want_notes
    else:
        assert any(note.startswith("read-only") and "/mnt" in note and "/usr" in note for note in notes)


def test_mounts_below_another_disk_are_read_only_for_root(pods: Stage) -> None:
    """The disk is bound with all that is mounted below it, and all of that is read-only."""
    disk = Path(tempfile.mkdtemp(prefix="argosy-disk-", dir="/srv"))
    try:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=True)
        (disk / "below").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk / "below"], check=True)
        mounts = [{"source": str(disk), "target": "/disk", "read_only": True}]
        script = "touch /disk/x /disk/below/x; test ! -e /disk/x -a ! -e /disk/below/x"
        state = finished(pods.run(run_spec(container_config("main", script, mounts=mounts))))
        ended = state["containers"]["main"]["ended"]
        assert ended is not None
        assert ended["exit_code"] == 0
        assert [entry.name for entry in disk.rglob("*")] == ["below"]
    finally:
        subprocess.run(["umount", "-R", disk], check=False)
        disk.rmdir()

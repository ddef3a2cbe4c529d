"""Unpacks the images that do not change once for all nodes of all clusters.

Unpacking the large image takes longer than the rest of a node's start. containerd therefore does it once,
into a folder in the cache; a node starts with a copy of that containerd's small database, and mounts the
unpacked layers read-only (`machine`).
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from argosy.local.node import kernel
from tests.support.assets import Programs, cache
from tests.support.cluster import images

_NOTES: Final = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
)
_START_SECONDS: Final = 30.0
_KEPT_SECONDS: Final = 14 * 24 * 3600.0


class StoreFailed(Exception):  # noqa: N818 - the name reads well without "Error"
    """The images could not be unpacked; the message has the output of containerd."""


def prepare(programs: Programs, archives: Sequence[Path]) -> Path:
    """A containerd folder with these images; archives are identified by their names."""
    size = programs.find("containerd").stat().st_size
    key = hashlib.sha256(repr([size, *(path.name for path in archives)]).encode())
    folder = cache() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    store = folder / f"{key.hexdigest()[:16]}.store"
    with (folder / "store.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not store.exists():
            for old in folder.glob("*.new"):
                shutil.rmtree(old)
            unfinished = store.with_suffix(".new")
            _unpack(programs, archives, unfinished)
            unfinished.replace(store)
        os.utime(store)
        _prune(folder)
    return store


def take_over(store: Path, root: Path) -> None:
    """Prepare the folder of a new containerd as if it had unpacked these images."""
    for note in _NOTES:
        (root / note).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(store / note, root / note)


def _unpack(programs: Programs, archives: Sequence[Path], root: Path) -> None:
    scratch = root / "scratch"
    scratch.mkdir(parents=True)
    socket_file = scratch / "containerd.sock"
    config = scratch / "config.toml"
    config.write_text(
        f'version = 3\nroot = "{root}"\nstate = "{scratch}/state"\nimports = []\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]\n'
        f'[grpc]\naddress = "{socket_file}"\n[ttrpc]\naddress = "{socket_file}.ttrpc"\n'
    )
    log = scratch / "log"
    with log.open("wb") as output:
        containerd = subprocess.Popen(
            [str(programs.find("containerd")), "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=_own_mounts,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not socket_file.exists():
            if containerd.poll() is not None or time.monotonic() > deadline:
                raise StoreFailed(f"containerd did not start: {log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.05)
        ctr = (str(programs.find("ctr")), "--address", str(socket_file), "--namespace", "k8s.io", "images")
        for archive in archives:
            _run(*ctr, "import", str(archive))
        # A synchronous removal ends with the garbage collection of unused content.
        _run(*ctr, "tag", images.PAUSE, "localhost/argosy/nothing:1")
        _run(*ctr, "rm", "--sync", "localhost/argosy/nothing:1")
    finally:
        containerd.terminate()
        containerd.wait()
    os.sync()
    shutil.rmtree(scratch)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StoreFailed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")


def _prune(folder: Path) -> None:
    """Remove folders that no cluster has started with for long."""
    for old in (*folder.glob("*.store"), *folder.glob("python-*")):
        if time.time() - old.stat().st_mtime > _KEPT_SECONDS:
            shutil.rmtree(old) if old.is_dir() else old.unlink()


def _own_mounts() -> None:
    """Enter a mount namespace, so that mounts of containerd are not visible elsewhere."""
    kernel.unshare(kernel.NEW_MOUNT)
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)

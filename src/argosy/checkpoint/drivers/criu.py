"""Finds CRIU, builds its command lines, and tells whether it works on this machine.

CRIU writes the processes of a container to files and makes processes of them again. The version in Debian 12
fails on newer kernels, so `scripts/criu` unpacks one with its own C library into the user's cache. Standard
library only: the shims of the local control plane import this, and stay small, so modules that only start
programs are imported where they are used.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

IMAGES: Final = "checkpoint"
"""The folder of CRIU's files in a checkpoint of a container."""

MISSING: Final = "CRIU is not installed; scripts/criu of a clone of Argosy unpacks it"

_LOADERS: Final = ("usr/lib*/*-linux-*/ld-linux*.so.*", "usr/lib*/ld-linux*.so.*")
_PROGRAM: Final = "usr/sbin/criu"
_ERROR: Final = re.compile(r"^\s*(?:\([\d.]+\)\s*)?(?:\d+: )?Error \([^)]*\):\s*(?:\d+: )?(.*)$")
_MEANINGLESS: Final = ("tun: Unable to create tun", "Can't setup RLIMIT_NOFILE for self")
_GHOST_LIMIT_BYTES: Final = 1 << 30
_PROBE_SECONDS: Final = 30.0


class Probe(NamedTuple):
    """What CRIU can do on this machine."""

    version: str
    problem: str
    """Why processes cannot be dumped and restored; empty if they can."""
    users_problem: str = ""
    """Why those of other users than root cannot."""


def find_prefix(system: Path = Path("/")) -> Path | None:
    """Return the folder with CRIU below `usr`: that of `scripts/criu`, or else the system's root."""
    try:
        root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        prefixes = [Path(root) / "argosy" / "criu", system]
    except RuntimeError:  # this user has no home
        prefixes = [system]
    return next((prefix for prefix in prefixes if _has_criu(prefix)), None)


def _has_criu(prefix: Path) -> bool:
    try:
        return (prefix / _PROGRAM).exists() and _find_loader(prefix) is not None
    except OSError:  # the home of another user
        return False


def _find_loader(prefix: Path) -> Path | None:
    """Return the loader of the C library, which is in the folder of the libraries."""
    loaders = (path for pattern in _LOADERS for path in sorted(prefix.glob(pattern)))
    return next(loaders, None)


def prefix_command(prefix: Path, at: str = "") -> list[str]:
    """Return the command of the CRIU in a prefix; `at` is the path of the prefix for whoever executes it."""
    path = _find_loader(prefix)
    if path is None:
        raise FileNotFoundError(f"{prefix} has no CRIU any more")
    loader, root = path.relative_to(prefix), at or str(prefix).rstrip("/")
    return [f"{root}/{loader}", "--library-path", f"{root}/{loader.parent}", f"{root}/{_PROGRAM}"]


def find_command() -> list[str] | None:
    """Return the command of CRIU on this machine, from a prefix or from PATH."""
    prefix = find_prefix()
    if prefix is not None:
        return prefix_command(prefix)
    import shutil

    program = shutil.which("criu")
    return [program] if program else None


def dump_arguments(pid: int, images: str) -> list[str]:
    """Return the arguments that dump a tree of stopped processes, which goes on afterwards.

    Connections are dumped and not cut: their processes stand still, so no lock of the network is needed.
    """
    return [
        *("dump", "--tree", str(pid), "--images-dir", images, "--leave-running", "--tcp-established"),
        *("--network-lock", "skip", "--manage-cgroups=ignore", "--file-locks"),
        *("--ghost-limit", str(_GHOST_LIMIT_BYTES), "--log-file", "dump.log", "-v2"),
    ]


def restore_arguments(images: str, work: str, pipes: Mapping[int, int]) -> list[str]:
    """Return the arguments that restore processes as children of the caller, with connections closed.

    `work` is where the log goes. `pipes` maps descriptors of CRIU to the inodes of the pipes they replace.
    """
    inherited = [f"fd[{descriptor}]:pipe:[{inode}]" for descriptor, inode in pipes.items()]
    return [
        *("restore", "--images-dir", images, "--work-dir", work, "--tcp-close"),
        *("--restore-detached", "--restore-sibling"),
        *("--manage-cgroups=ignore", "--file-locks", "--log-file", "restore.log", "-v2"),
        *(word for text in inherited for word in ("--inherit-fd", text)),
    ]


def failure_reason(*logs: Path) -> str:
    """Return CRIU's first error in its logs, without those that mean nothing."""
    for log in logs:
        try:
            lines = log.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            match = _ERROR.match(line)
            text = match[1].strip() if match else ""
            if text and not any(part in text for part in _MEANINGLESS):
                return text
    return "CRIU gives no reason"


def version(command: Sequence[str]) -> str:
    """Return the version of CRIU; empty if it cannot be executed."""
    try:
        output = _run([*command, "--version"])[1]
    except OSError:
        return ""
    match = re.search(r"Version: (\S+)", output)
    return match[1] if match else ""


def probe() -> Probe:
    """Dump and restore a toy process; takes about a second and leaves nothing behind."""
    command = find_command()
    if command is None:
        return Probe("", MISSING)
    criu_version = version(command)
    if os.geteuid() != 0:
        return Probe(criu_version, "CRIU needs root")
    try:
        code, output = _run([*command, "check"])
        if code != 0:
            errors = [line for line in output.splitlines() if "Error" in line]
            return Probe(criu_version, f"criu check: {errors[0] if errors else code}")
        problem = _dump_and_restore(command, 0)
        return Probe(criu_version, problem, problem or _dump_and_restore(command, 1000))
    except OSError as error:
        return Probe(criu_version, str(error))


def _dump_and_restore(command: Sequence[str], user: int) -> str:
    """Dump a process that sleeps, and restore it; return the problem, or nothing."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="argosy-criu-") as folder:
        sleeper = subprocess.Popen(
            ["/bin/sleep", "1000"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=[],
        )
        restored = Path(folder, "restored.pid")
        try:
            arguments = ["dump", "--tree", str(sleeper.pid), "--images-dir", folder, "--log-file", "dump.log"]
            if not _succeeds(command, arguments):
                return failure_reason(Path(folder, "dump.log"))
            sleeper.wait(_PROBE_SECONDS)
            arguments = ["restore", "--images-dir", folder, "--restore-detached", "--log-file", "restore.log"]
            if not _succeeds(command, [*arguments, "--pidfile", restored.name]):
                return failure_reason(Path(folder, "restore.log"))
        finally:
            sleeper.kill()
            sleeper.wait()
            if restored.exists():
                _end(int(restored.read_text()))
    return ""


def _succeeds(command: Sequence[str], arguments: Sequence[str]) -> bool:
    return _run([*command, *arguments])[0] == 0


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Return exit code and output; raises TimeoutError."""
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{command[0]} does not end") from None
    return done.returncode, done.stdout + done.stderr


def _end(pid: int) -> None:
    """Kill the restored process, which is a child of ours if CRIU's parent adopted it."""
    os.kill(pid, 9)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except ChildProcessError:
            return
        time.sleep(0.01)

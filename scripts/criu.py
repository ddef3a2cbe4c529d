"""`scripts/criu`: unpack CRIU and all that it needs from Debian's packages, without installing anything.

They are those of Debian's next release, because earlier versions cannot dump sockets on Linux 6.16 and later,
and come from the Debian archive that this machine's apt uses. apt has lists of its own here and checks
signatures and checksums. The system itself, its libraries and its apt lists stay as they are, and no root is
needed.

`criu.lock` has the versions that were tested. Debian keeps one version of a package per release, so a newer
one is taken, and named, where the archive has no other. `--update` writes the lock again.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

LOCK = Path(__file__).parent / "criu.lock"
SUITE = "forky"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
STAMP = "argosy-lock"

_CONFIG = """\
Dir::Etc "{apt}/etc";
Dir::Etc::sourcelist "{apt}/etc/sources.list";
Dir::Etc::sourceparts "{apt}/empty";
Dir::Etc::parts "{apt}/empty";
Dir::State "{apt}/state";
Dir::State::status "{apt}/status";
Dir::Cache "{apt}/cache";
APT::Architecture "{architecture}";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Debug::NoLocking "true";
"""


class UnavailableError(Exception):
    """CRIU cannot be unpacked here; the message says why."""


@dataclass(frozen=True, order=True)
class Pin:
    """One package of the lock."""

    name: str
    version: str
    sha256: str


def prefix() -> Path:
    """Return the folder that holds CRIU and its libraries; shared by all clones of a user."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "argosy" / "criu"


def unpack() -> Path:
    """Unpack the packages of the lock unless that was done; return the folder."""
    folder = prefix()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "criu.flock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        stamp = folder / STAMP
        if stamp.exists() and stamp.read_bytes() == LOCK.read_bytes():
            return folder
        architecture, tested = read_lock(LOCK)
        with tempfile.TemporaryDirectory(prefix=".criu-", dir=folder.parent) as scratch:
            archive = Archive(Path(scratch) / "apt", architecture)
            root = Path(scratch) / "root"
            pins = archive.closure()
            for pin in sorted(set(pins) - set(tested)):
                sys.stderr.write(f"{pin.name} {pin.version}: the tested version is gone\n")
            for path in archive.download(pins):
                _run(["dpkg", "-x", str(path), str(root)])
            (root / STAMP).write_bytes(LOCK.read_bytes())
            root.chmod(0o755)
            shutil.rmtree(folder, ignore_errors=True)
            root.rename(folder)
    return folder


def update() -> None:
    """Write the lock from the present packages of the suite."""
    architecture = _run(["dpkg", "--print-architecture"]).strip()
    with tempfile.TemporaryDirectory(prefix="argosy-criu-") as scratch:
        archive = Archive(Path(scratch) / "apt", architecture)
        pins = sorted(archive.closure())
    lines = [f"# CRIU and what it needs, from Debian {SUITE} ({architecture}): scripts/criu --update"]
    lines += [f"{pin.name} {pin.version} {pin.sha256}" for pin in pins]
    LOCK.write_text("\n".join(lines) + "\n")


def read_lock(path: Path) -> tuple[str, list[Pin]]:
    """Return the architecture and the packages of the lock."""
    first, *lines = path.read_text().splitlines()
    return first.partition("(")[2].partition(")")[0], [Pin(*line.split()) for line in lines]


class Archive:
    """The Debian archive of this machine, with apt lists in a folder of its own."""

    def __init__(self, folder: Path, architecture: str) -> None:
        for name in ("apt-get", "apt-cache", "dpkg"):
            if shutil.which(name) is None:
                raise UnavailableError(f"{name} is needed, which Debian and its derivatives have")
        installed = _run(["dpkg", "--print-architecture"]).strip()
        if installed != architecture:
            raise UnavailableError(f"the lock is for {architecture}, this machine is {installed}")
        if not KEYRING.exists():
            raise UnavailableError(f"{KEYRING} is missing (Debian package debian-archive-keyring)")
        for name in ("etc", "empty", "state/lists/partial", "cache/archives/partial", "packages"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()  # nothing is installed: the closure includes the C library
        source = f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n"
        (folder / "etc" / "sources.list").write_text(source)
        config = folder / "apt.conf"
        config.write_text(_CONFIG.format(apt=folder, architecture=architecture))
        self._folder = folder
        self._environment = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C.UTF-8"}
        self._apt("apt-get", "-qq", "update")

    def closure(self) -> list[Pin]:
        """Return CRIU and all that it depends on."""
        options = ("-qq", "-y", "--no-install-recommends", "--print-uris")
        listed = self._apt("apt-get", "install", *options, "criu")
        pins = []
        for line in listed.splitlines():
            if line.startswith("'"):
                name, version, _ = line.split()[1].split("_", 2)
                version = unquote(version)
                shown = self._apt("apt-cache", "show", f"{name}={version}").splitlines()
                checksum = next(text for text in shown if text.startswith("SHA256: "))
                pins.append(Pin(name, version, checksum.split()[1]))
        return pins

    def download(self, pins: Sequence[Pin]) -> list[Path]:
        """Download these packages; raise UnavailableError unless each has its checksum."""
        packages = self._folder / "packages"
        wanted = [f"{pin.name}={pin.version}" for pin in pins]
        self._apt("apt-get", "-qq", "download", *wanted, cwd=packages)
        checksums = {pin.sha256 for pin in pins}
        paths = sorted(packages.glob("*.deb"))
        found = {hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        if found != checksums:
            raise UnavailableError("a downloaded package does not have its checksum")
        return paths

    def _apt(self, *command: str, cwd: Path | None = None) -> str:
        return _run(command, self._environment, cwd)


def mirror() -> str:
    """Return the address of the Debian archive in this machine's apt sources."""
    listed = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
    for address in listed.split():
        if address.rstrip("/").endswith("/debian"):
            return address
    raise UnavailableError("the apt sources of this machine do not have the Debian archive")


def _run(command: Sequence[str], environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if line.startswith("E:")] or lines
        raise UnavailableError(f"{' '.join(command[:3])}: {errors[0] if errors else done.returncode}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/criu", description="unpack CRIU for process checkpoints")
    parser.add_argument("--update", action="store_true", help="write the lock from what Debian has now")
    options = parser.parse_args()
    try:
        if options.update:
            update()
        sys.stdout.write(f"{unpack()}\n")
    except UnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

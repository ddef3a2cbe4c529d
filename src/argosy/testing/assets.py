"""The programs of a real Kubernetes API: found where they are, or built once and kept outside the clone.

The sources are pinned in `kubernetes/` of the clone (a go.sum each), so what is built is the same
everywhere. A program appears in the cache by a rename when it is complete, and a lock makes a second builder
wait for the first: a half-built or twice-built program cannot be seen.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PINS = Path(__file__).parents[3] / "kubernetes"


class MissingAsset(Exception):  # noqa: N818 - it reads as what it is
    """A program is not there and cannot be made; the message says what to do."""


def kubernetes_version() -> str:
    """The version of Kubernetes that this clone pins, without a leading v."""
    pins = PINS / "apiserver" / "go.mod"
    if not pins.exists():
        raise MissingAsset("the pinned sources of kube-apiserver are only in a clone of the repository")
    found = re.search(r"^\s*k8s\.io/kubernetes v(\S+)", pins.read_text(), re.MULTILINE)
    if found is None:
        raise MissingAsset(f"{pins}: no version of k8s.io/kubernetes")
    return found[1]


def cache() -> Path:
    """The folder of built programs; shared by all clones of a user."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "argosy" / "kubernetes" / kubernetes_version() / "bin"


def find(program: str) -> Path:
    """A program's path, in $KUBEBUILDER_ASSETS if set, else in the cache; raises MissingAsset otherwise."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        path = Path(assets) / program
        if not os.access(path, os.X_OK):
            raise MissingAsset(f"{program} is not in KUBEBUILDER_ASSETS ({assets})")
        return path
    path = cache() / program
    if not path.exists():
        raise MissingAsset(f"{program} is not built; run scripts/kubernetes build apiserver")
    return path


def build_apiserver(say: Callable[[str], None]) -> None:
    """Make sure that etcd and kube-apiserver are there. The first time it takes minutes, later nothing."""
    if os.environ.get("KUBEBUILDER_ASSETS"):
        for program in ("etcd", "kube-apiserver"):
            say(f"{program}: {find(program)}")
        return
    with _locked(cache()):
        for program, folder, flags in (
            ("etcd", PINS / "etcd", ("-s", "-w")),
            ("kube-apiserver", PINS / "apiserver", ("-s", "-w", *_version_flags())),
        ):
            path, stamp = cache() / program, cache() / f"{program}.pins"
            pins = _digest(folder)
            if not path.exists() or not stamp.exists() or stamp.read_text() != pins:
                say(f"{program}: building {path}, once; this takes minutes")
                beside = path.with_suffix(f".{os.getpid()}")
                _go_build(folder, flags, beside)
                beside.replace(path)
                stamp.write_text(pins)
            say(f"{program}: {path}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "build.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _digest(folder: Path) -> str:
    """What a program is built from, as one hash: a cache of other sources is built anew."""
    content = b"".join((folder / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    return hashlib.sha256(content).hexdigest()


def _version_flags() -> tuple[str, ...]:
    """A build from modules does not know its own version; clients are told it."""
    version = kubernetes_version()
    major, minor = version.split(".")[:2]
    facts = {
        "k8s.io/component-base/version.gitVersion": f"v{version}",
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": f"v{version}",
    }
    return tuple(f"-X {name}={value}" for name, value in facts.items())


def _go_build(folder: Path, flags: Sequence[str], output: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise MissingAsset(
            "building kube-apiserver and etcd needs Go 1.26 or later (https://go.dev/dl); "
            "or set KUBEBUILDER_ASSETS to a folder that has both"
        )
    command = [go, "build", "-mod=readonly", "-trimpath", "-ldflags", " ".join(flags), "-o", str(output), "."]
    try:
        subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        raise MissingAsset(f"{output.stem} could not be built: go ended with {error.returncode}") from error

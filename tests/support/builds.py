"""Builds the programs of a real Kubernetes, once, from the Go modules pinned in `kubernetes/`.

A complete program is renamed into the cache, with a stamp that has the hash of its sources; a lock makes a
concurrent build wait. So nobody sees an incomplete program, and a build that was interrupted continues
where it stopped. Builds run at the lowest priority, because they take minutes.

`nft`, which kube-proxy calls, and the seccomp library, which is linked into runc, are no Go modules. If the
machine does not have them, they are unpacked from Debian's packages without installing those.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.assets import PINS, REFERENCE, MissingAsset, Programs

Say = Callable[[str], None]

S3_SERVER: Final = "versitygw"
_ADMINISTRATION: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Recipe:
    program: str
    folder: Path
    package: str = "."
    facts: tuple[tuple[str, str], ...] = ()
    """Variables that the linker sets: a build from modules does not know its own version."""
    tags: tuple[str, ...] = ()
    seccomp: bool = False

    @property
    def pins(self) -> str:
        """The hash of the sources; another one means that the program is built again."""
        files = (self.folder / name for name in ("go.mod", "go.sum", "main.go"))
        content = b"".join(path.read_bytes() for path in files if path.exists())
        return hashlib.sha256(content + repr((self.package, self.facts, self.tags)).encode()).hexdigest()


def recipes(programs: Programs) -> list[Recipe]:
    """All programs of a cluster, the quickest builds first."""
    major, minor = programs.version.split(".")[:2]
    facts = (
        ("k8s.io/component-base/version.gitVersion", f"v{programs.version}"),
        ("k8s.io/component-base/version.gitMajor", major),
        ("k8s.io/component-base/version.gitMinor", minor),
        ("k8s.io/client-go/pkg/version.gitVersion", f"v{programs.version}"),
    )
    plugins = "github.com/containernetworking/plugins/plugins"
    containerd = "github.com/containerd/containerd/v2/cmd"
    light = ("no_btrfs", "no_devmapper", "no_zfs", "no_tracing")
    return [
        Recipe("etcd", PINS / "etcd"),
        *(
            Recipe(name, programs.pins, f"k8s.io/kubernetes/cmd/{name}", facts)
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
            )
        ),
        *(
            Recipe(name, PINS / "containerd", f"{containerd}/{name}", tags=light)
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        Recipe("runc", PINS / "runc", "github.com/opencontainers/runc", tags=("seccomp",), seccomp=True),
        *(
            Recipe(kind.rpartition("/")[2], PINS / "cni", f"{plugins}/{kind}")
            for kind in ("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap")
        ),
        Recipe("coredns", PINS / "coredns"),
        Recipe("pause", PINS / "pause"),
    ]


def tools() -> list[Recipe]:
    """Programs that are not part of a cluster: what installs something on it, and a server of S3."""
    return [
        Recipe("helm", PINS / "helm", "helm.sh/helm/v3/cmd/helm"),
        Recipe(S3_SERVER, PINS / S3_SERVER, "github.com/versity/versitygw/cmd/versitygw"),
    ]


def build(programs: Programs, say: Say, *, reference_only: bool = False) -> None:
    """Build the programs that are not in the cache."""
    if reference_only and os.environ.get("KUBEBUILDER_ASSETS"):
        for program in REFERENCE:
            say(f"{program}: {programs.find(program)}")
        return
    folder = programs.cache
    every = (*recipes(programs), *tools())
    _build_missing(
        folder, [recipe for recipe in every if recipe.program in REFERENCE or not reference_only], say
    )
    if not reference_only:
        with _locked(folder):
            _find_nft(folder)
    what = "etcd and kube-apiserver" if reference_only else "all programs of a cluster"
    say(f"Kubernetes {programs.version}: {what} in {folder}")


def build_s3_server(programs: Programs, say: Say) -> None:
    """Build the server of S3 if it is not in the cache."""
    _build_missing(programs.cache, [recipe for recipe in tools() if recipe.program == S3_SERVER], say)
    say(f"{S3_SERVER}: in {programs.cache}")


def _build_missing(folder: Path, wanted: Sequence[Recipe], say: Say) -> None:
    missing = [recipe for recipe in wanted if not _is_built(folder, recipe)]
    _check_tools(missing)
    for number, recipe in enumerate(missing, 1):
        with _locked(folder):
            if not _is_built(folder, recipe):
                say(f"{recipe.program}: building, {number} of {len(missing)}; all of it takes minutes, once")
                _build_one(folder, recipe)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Held for one program at a time, so that a build of few programs does not wait for a build of all."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "build.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        shutil.rmtree(folder / ".building", ignore_errors=True)
        (folder / ".building").mkdir()
        try:
            yield
        finally:
            shutil.rmtree(folder / ".building")


def _is_built(folder: Path, recipe: Recipe) -> bool:
    stamp = folder / f"{recipe.program}.pins"
    return (folder / recipe.program).exists() and stamp.exists() and stamp.read_text() == recipe.pins


def _check_tools(missing: Sequence[Recipe]) -> None:
    if missing and shutil.which("go") is None:
        names = ", ".join(recipe.program for recipe in missing)
        raise MissingAsset(
            f"building {names} needs Go 1.26 or later (https://go.dev/dl); "
            "or set KUBEBUILDER_ASSETS to a folder that has etcd and kube-apiserver, "
            "or ARGOSY_TEST_KUBECONFIG to an existing cluster"
        )
    if any(recipe.seccomp for recipe in missing) and shutil.which("gcc") is None:
        raise MissingAsset("building runc needs a C compiler (Debian, Ubuntu: apt install gcc libc6-dev)")


def _build_one(folder: Path, recipe: Recipe) -> None:
    path, stamp = folder / recipe.program, folder / f"{recipe.program}.pins"
    unfinished = folder / ".building" / recipe.program
    environment = {**os.environ, "CGO_ENABLED": "0"}
    if recipe.seccomp:
        environment |= _with_seccomp(folder)
    _go_build(recipe, environment, unfinished)
    stamp.unlink(missing_ok=True)
    unfinished.replace(path)
    stamp.write_text(recipe.pins)


def _go_build(recipe: Recipe, environment: Mapping[str, str], output: Path) -> None:
    flags = ["-s", "-w", *(f"-X {name}={value}" for name, value in recipe.facts)]
    command = ["nice", "-n", "19", "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    command += [
        "-tags",
        ",".join(recipe.tags),
        "-ldflags",
        " ".join(flags),
        "-o",
        str(output),
        recipe.package,
    ]
    try:
        subprocess.run(command, cwd=recipe.folder, env=environment, check=True, stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        raise MissingAsset(
            f"{recipe.program} could not be built: go ended with {error.returncode}"
        ) from error


def _with_seccomp(folder: Path) -> dict[str, str]:
    """Environment variables with which the compiler finds the seccomp library.

    Go caches the output of pkg-config with the compiled code, and would use its paths for another folder.
    """
    script = folder / ".building" / "pkg-config"
    script.write_text('#!/bin/sh\ncase "$*" in *--libs*) echo -lseccomp ;; esac\n')
    script.chmod(0o755)
    variables = {"CGO_ENABLED": "1", "PKG_CONFIG": str(script)}
    if not Path("/usr/include/seccomp.h").exists():
        unpacked = _debian(folder, "libseccomp-dev", "runc")
        libraries = next(unpacked.glob("usr/lib/*/libseccomp.a")).parent
        variables |= {"C_INCLUDE_PATH": str(unpacked / "usr" / "include"), "LIBRARY_PATH": str(libraries)}
    return variables


def _find_nft(folder: Path) -> None:
    """Put `nft` of the machine, or of Debian's package, into the folder of the other programs."""
    path = folder / "nft"
    if path.exists():
        return
    unfinished = folder / ".building" / "nft"
    search = os.pathsep.join((os.environ.get("PATH", ""), *_ADMINISTRATION))
    if installed := shutil.which("nft", path=search):
        unfinished.symlink_to(installed)
    else:
        unpacked = _debian(folder, "nftables", "kube-proxy")
        libraries = unpacked / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
        unfinished.write_text(
            f'#!/bin/sh\nLD_LIBRARY_PATH="{libraries}" exec "{unpacked}/usr/sbin/nft" "$@"\n'
        )
        unfinished.chmod(0o755)
    unfinished.replace(path)


def _debian(folder: Path, package: str, user: str) -> Path:
    """The folder of an unpacked Debian package, with the dependencies that the machine does not have."""
    unpacked = folder.parent / "debian" / package
    if unpacked.exists():
        return unpacked
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise MissingAsset(f"{user} needs the files of Debian's package {package}: install them")
    scratch = folder / ".building" / package
    (scratch / "archives" / "partial").mkdir(parents=True)
    (scratch / "lists" / "partial").mkdir(parents=True)
    quiet = [
        "apt-get",
        "-qq",
        "-y",
        "-o",
        "Debug::NoLocking=1",
        "-o",
        f"Dir::Cache::archives={scratch}/archives",
    ]
    install = ["install", "--download-only", "--no-install-recommends", package]
    own_lists = ["-o", f"Dir::State::lists={scratch}/lists"]
    if not _runs([*quiet, *install]) and not (
        _runs([*quiet, *own_lists, "update"]) and _runs([*quiet, *own_lists, *install])
    ):
        raise MissingAsset(f"{user} needs {package}, which apt-get could not fetch: apt install {package}")
    for archive in sorted((scratch / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(archive), str(scratch / "root")], check=True)
    unpacked.parent.mkdir(exist_ok=True)
    (scratch / "root").replace(unpacked)
    return unpacked


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0

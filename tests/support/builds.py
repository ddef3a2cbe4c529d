"""Makes the programs of a real Kubernetes, once, from the Go modules pinned in `kubernetes/`.

A program appears in the cache by a rename when it is complete, with a note of what it was made from; a lock
makes a second builder wait for the first. So a half-built or twice-built program cannot be seen, and a build
that was ended goes on where it was. Builds are as nice as can be: they take minutes, and others work
meanwhile.

Two things are no Go modules: `nft`, which kube-proxy calls, and the seccomp library, which is linked into
runc. Where the machine lacks them they are taken out of Debian's packages, without installing those.
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

_ADMINISTRATION: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Recipe:
    program: str
    folder: Path
    package: str = "."
    facts: tuple[tuple[str, str], ...] = ()
    """Variables that are set by the linker: a build from modules does not know its own version."""
    tags: tuple[str, ...] = ()
    seccomp: bool = False

    @property
    def pins(self) -> str:
        """What the program is built from, as one hash: from other sources it is built anew."""
        files = (self.folder / name for name in ("go.mod", "go.sum", "main.go"))
        content = b"".join(path.read_bytes() for path in files if path.exists())
        return hashlib.sha256(content + repr((self.package, self.facts, self.tags)).encode()).hexdigest()


def recipes(programs: Programs) -> list[Recipe]:
    """All programs of a cluster, those first that others wait for least."""
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
    """Programs that no cluster needs, but those who install something on one."""
    return [Recipe("helm", PINS / "helm", "helm.sh/helm/v3/cmd/helm")]


def build(programs: Programs, say: Say, *, judge_only: bool = False) -> None:
    """Make sure that all programs are there. The first time it takes minutes, later nothing."""
    if judge_only and os.environ.get("KUBEBUILDER_ASSETS"):
        for program in REFERENCE:
            say(f"{program}: {programs.find(program)}")
        return
    folder = programs.cache
    every = (*recipes(programs), *tools())
    wanted = [recipe for recipe in every if recipe.program in REFERENCE or not judge_only]
    missing = [recipe for recipe in wanted if not _is_built(folder, recipe)]
    _check_tools(missing)
    for number, recipe in enumerate(missing, 1):
        with _locked(folder):
            if not _is_built(folder, recipe):
                say(f"{recipe.program}: building, {number} of {len(missing)}; all of it takes minutes, once")
                _build_one(folder, recipe)
    if not judge_only:
        with _locked(folder):
            _find_nft(folder)
    what = "etcd and kube-apiserver" if judge_only else "all programs of a cluster"
    say(f"Kubernetes {programs.version}: {what} in {folder}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One builder at a time, for one program: who wants few does not wait for who wants all."""
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
            "or ARGOSY_TEST_KUBECONFIG to a cluster of yours"
        )
    if any(recipe.seccomp for recipe in missing) and shutil.which("gcc") is None:
        raise MissingAsset("building runc needs a C compiler (Debian, Ubuntu: apt install gcc libc6-dev)")


def _build_one(folder: Path, recipe: Recipe) -> None:
    path, stamp = folder / recipe.program, folder / f"{recipe.program}.pins"
    beside = folder / ".building" / recipe.program
    environment = {**os.environ, "CGO_ENABLED": "0"}
    if recipe.seccomp:
        environment |= _with_seccomp(folder)
    _go_build(recipe, environment, beside)
    stamp.unlink(missing_ok=True)
    beside.replace(path)
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
    """Where the compiler finds the seccomp library, told by variables that only it reads.

    Go keeps what pkg-config said with what it compiled, and would look there in the build of another folder.
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
    """Make `nft` of the machine, or one out of Debian's package, stand beside the other programs."""
    path = folder / "nft"
    if path.exists():
        return
    beside = folder / ".building" / "nft"
    search = os.pathsep.join((os.environ.get("PATH", ""), *_ADMINISTRATION))
    if found := shutil.which("nft", path=search):
        beside.symlink_to(found)
    else:
        unpacked = _debian(folder, "nftables", "kube-proxy")
        libraries = unpacked / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
        beside.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{libraries}" exec "{unpacked}/usr/sbin/nft" "$@"\n')
        beside.chmod(0o755)
    beside.replace(path)


def _debian(folder: Path, package: str, user: str) -> Path:
    """A Debian package and what it needs that the machine lacks, unpacked beside the programs."""
    unpacked = folder.parent / "debian" / package
    if unpacked.exists():
        return unpacked
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise MissingAsset(f"{user} needs what Debian has in its package {package}: please install that")
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

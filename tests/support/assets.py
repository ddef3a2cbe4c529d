"""Finds the programs of a real Kubernetes, in the folder KUBEBUILDER_ASSETS or in the user's cache.

`kubernetes/` has a folder of pinned Go modules for each supported minor version. `builds` compiles them
into the cache, which all clones of a user share, in a folder for each exact version.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PINS: Final = Path(__file__).parents[2] / "kubernetes"
DEFAULT: Final = "1.36"
"""The minor version that is used unless another is chosen."""
REFERENCE: Final = ("etcd", "kube-apiserver")
"""The programs of the reference apiserver; a folder in KUBEBUILDER_ASSETS must have them."""


class MissingAsset(Exception):  # noqa: N818 - the name reads well without "Error"
    """A program does not exist and cannot be built; the message says how to get it."""


@dataclass(frozen=True)
class Programs:
    """The programs of one minor version of Kubernetes."""

    minor: str = DEFAULT

    @property
    def pins(self) -> Path:
        return PINS / self.minor

    @property
    def version(self) -> str:
        """The exact version that this clone pins, without a leading v."""
        pins = self.pins / "go.mod"
        if not pins.exists():
            raise MissingAsset(
                f"Kubernetes {self.minor} is not pinned; known versions: {', '.join(minors())}"
            )
        match = re.search(r"^\s*(?:require )?k8s\.io/kubernetes v(\S+)", pins.read_text(), re.MULTILINE)
        if match is None:
            raise MissingAsset(f"{pins}: no version of k8s.io/kubernetes")
        return match[1]

    @property
    def cache(self) -> Path:
        """The folder of built programs; shared by all clones of a user."""
        return cache() / self.version / "bin"

    def find(self, program: str) -> Path:
        """The path of a program in $KUBEBUILDER_ASSETS, or else in the cache; raises MissingAsset otherwise.

        A folder in KUBEBUILDER_ASSETS must have the programs of the reference apiserver, and may have others.
        """
        if assets := os.environ.get("KUBEBUILDER_ASSETS"):
            path = Path(assets) / program
            if os.access(path, os.X_OK):
                return path
            if program in REFERENCE:
                raise MissingAsset(f"{program} is not in KUBEBUILDER_ASSETS ({assets})")
        path = self.cache / program
        if not path.exists():
            what = " apiserver" if program in REFERENCE else ""
            version = "" if self.minor == DEFAULT else f" --version {self.minor}"
            raise MissingAsset(f"{program} is not built; run scripts/kubernetes build{what}{version}")
        return path


def minors() -> list[str]:
    """The minor versions that this clone pins, the newest first."""
    if not PINS.is_dir():
        raise MissingAsset("the pinned sources of Kubernetes are only in a clone of the repository")
    names = [folder.name for folder in PINS.iterdir() if re.fullmatch(r"\d+\.\d+", folder.name)]
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")], reverse=True)


def cache() -> Path:
    """The folder for everything that is kept outside of the clone."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "argosy" / "kubernetes"


def find(program: str) -> Path:
    """The path of a program of the default version."""
    return Programs().find(program)

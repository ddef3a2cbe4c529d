"""The programs of a real Kubernetes: found where they are, in a folder of the user's or in the cache.

Each version of Kubernetes that a clone knows is a folder of pinned Go modules in `kubernetes/`. What is
built from it (by `builds`) is kept outside of the clone, in a folder for each exact version, for all clones
of a user.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PINS: Final = Path(__file__).parents[2] / "kubernetes"
DEFAULT: Final = "1.36"
"""The minor version that is meant when none is named."""
REFERENCE: Final = ("etcd", "kube-apiserver")
"""What a user's own folder of programs, in KUBEBUILDER_ASSETS, must have."""


class MissingAsset(Exception):  # noqa: N818 - it reads as what it is
    """A program is not there and cannot be made; the message says what to do."""


@dataclass(frozen=True)
class Programs:
    """All programs of one version of Kubernetes, named by its minor version."""

    minor: str = DEFAULT

    @property
    def pins(self) -> Path:
        return PINS / self.minor

    @property
    def version(self) -> str:
        """The exact version that this clone pins, without a leading v."""
        pins = self.pins / "go.mod"
        if not pins.exists():
            raise MissingAsset(f"Kubernetes {self.minor} is not pinned here; there is: {', '.join(minors())}")
        found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes v(\S+)", pins.read_text(), re.MULTILINE)
        if found is None:
            raise MissingAsset(f"{pins}: no version of k8s.io/kubernetes")
        return found[1]

    @property
    def cache(self) -> Path:
        """The folder of built programs; shared by all clones of a user."""
        return cache() / self.version / "bin"

    def find(self, program: str) -> Path:
        """A program's path, in $KUBEBUILDER_ASSETS or else in the cache; raises MissingAsset otherwise.

        A user's folder that is named must have the judge's programs; it may have the others.
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
    found = [folder.name for folder in PINS.iterdir() if re.fullmatch(r"\d+\.\d+", folder.name)]
    return sorted(found, key=lambda name: [int(part) for part in name.split(".")], reverse=True)


def cache() -> Path:
    """What is kept outside of the clone."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "argosy" / "kubernetes"


def find(program: str) -> Path:
    """A program of the version that is meant when none is named."""
    return Programs().find(program)

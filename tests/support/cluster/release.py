"""Installs the operator on a test cluster with Helm, from the chart of this clone or a copy."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from argosy.engine.dynamic import Json
from argosy.install.chart import chart_folder
from argosy.kinds.labels import OPERATOR_NAMESPACE
from tests.support.assets import Programs
from tests.support.cluster.running import RunningCluster

NAME = "argosy"
SELECTOR = "app.kubernetes.io/name=argosy,app.kubernetes.io/component=operator"


@dataclass(frozen=True)
class Release:
    """One release on one cluster."""

    cluster: RunningCluster
    namespace: str = OPERATOR_NAMESPACE

    def helm(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        helm = Programs(self.cluster.settings.version).find("helm")
        where = ("--kubeconfig", str(self.cluster.server.kubeconfig), "--namespace", self.namespace)
        done = subprocess.run(
            (str(helm), *words, *where), capture_output=True, text=True, timeout=300, check=False
        )
        if code is not None and done.returncode != code:
            raise AssertionError(
                f"helm {' '.join(words)}: {done.stdout}{done.stderr}\n{self.describe_pods()}"
            )
        return done

    def install(self, *options: str, chart: Path | None = None, standard: str = "restricted") -> None:
        """Install into a namespace with a pod security standard, and wait until it is ready."""
        label = f"pod-security.kubernetes.io/enforce={standard}"
        self.cluster.kubectl("create", "namespace", self.namespace, code=None)
        self.cluster.kubectl("label", "--overwrite", "namespace", self.namespace, label)
        self.helm("install", NAME, str(chart or chart_folder()), "--wait", "--timeout=2m", *options)

    def upgrade(self, *options: str, chart: Path | None = None) -> None:
        self.helm("upgrade", NAME, str(chart or chart_folder()), "--wait", "--timeout=2m", *options)

    def uninstall(self) -> None:
        self.helm("uninstall", NAME, "--wait")

    def pods(self) -> list[dict[str, Json]]:
        """The operator's pods that are not terminating."""
        pods_found = cast("list[dict[str, Json]]", self.cluster.get("pods", "-A", "-l", SELECTOR)["items"])
        return [pod for pod in pods_found if "deletionTimestamp" not in pod["metadata"]]

    def describe_pods(self) -> str:
        """The operator's pods and the ends of their logs, for the message of a failed test."""
        where = ("-n", self.namespace, "-l", SELECTOR)
        pods = self.cluster.kubectl("describe", "pods", *where, code=None).stdout
        logs = self.cluster.kubectl("logs", "--tail=30", "--prefix", *where, code=None)
        return f"{pods}\n{logs.stdout}{logs.stderr}"


def older_chart(to: Path, version: str) -> Path:
    """A copy of the chart with another version and the same image."""
    copied = Path(shutil.copytree(chart_folder(), to / "argosy"))
    about = copied / "Chart.yaml"
    lines = [
        f"{line.partition(':')[0]}: {version}" if line.startswith(("version:", "appVersion:")) else line
        for line in about.read_text().splitlines()
    ]
    about.write_text("\n".join(lines) + "\n")
    return copied

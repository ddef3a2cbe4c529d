"""Tests for pods of an unprivileged user, in a user namespace: they behave as those of root."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from argosy.local.node.namespace_holder import explain_forbidden
from tests.support.rootless import NOBODY, python_path

SCRIPT = """
import json, sys
from pathlib import Path
from argosy.local.node import namespace_holder, network
from argosy.local.node.logs import log_path, read_lines
from tests.support.runspecs import container_config, finished, run_spec, pod_network, stage

folder = Path(sys.argv[1])
try:
    namespace_holder.enter(namespace_holder.PendingHolder(folder, rootless=True).wait(), rootless=True)
    network.ensure_bridge("argosy0", "10.88.0.1", 24)
    with stage(folder) as pods:
        runspec = run_spec(
            container_config("root", "id -u; touch /usr/mine && echo written; ls -A /root /home; hostname"),
            container_config("user", "id -u; grep CapEff /proc/self/status", uid=1234, gid=1234),
            container_config("net", "grep -c eth0 /proc/net/dev"),
            uid="pod", rootless=True, hidden=["/home", "/root", str(folder)], address="10.88.0.9",
            network=pod_network("argosy0", "10.88.0.9", "pod", "10.88.0.1"),
        )
        place = pods.run(runspec)
        state = finished(place)
        text = {name: b"".join(l.format(False) for l in read_lines(log_path(place, name, 0))).decode()
                for name in state["containers"]}
        print(json.dumps({"ends": {n: c["ended"] for n, c in state["containers"].items()}, "text": text}))
finally:
    namespace_holder.stop(folder)
"""


def interpreter() -> str | None:
    """A Python that an unprivileged user may run."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        check = [candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            done = subprocess.run(check, user=NOBODY, group=NOBODY, extra_groups=[], check=False, cwd="/")
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    return None


@pytest.mark.root
def test_an_unprivileged_user_can_run_a_pod() -> None:
    python = interpreter()
    if python is None:
        pytest.skip("no Python 3.11 that an unprivileged user may run")
    with tempfile.TemporaryDirectory(prefix="ay-", dir="/tmp") as name:
        folder = Path(name)
        os.chown(folder, NOBODY, NOBODY)
        folder.chmod(0o700)
        done = subprocess.run(
            [python, "-c", SCRIPT, name],
            env={"PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert {name: ended["exit_code"] for name, ended in output["ends"].items()} == {
        "root": 0,
        "user": 0,
        "net": 0,
    }
    assert output["text"]["root"].split() == ["0", "written", "/home:", "/root:", "pod"]
    assert output["text"]["user"].split() == ["1234", "CapEff:", "0000000000000000"]
    assert output["text"]["net"] == "1\n"


CASES = {
    "kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    "user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        f'profile argosy "{Path(sys.executable).resolve()}" flags=(unconfined) {{\n  userns,\n}}\n'
        "END\napparmor_parser -r /etc/apparmor.d/argosy",
    ),
}


@pytest.mark.parametrize("setting", CASES)
def test_the_error_names_the_setting_that_forbids_namespaces(setting: str, tmp_path: Path) -> None:
    value, want = CASES[setting]
    (tmp_path / setting).parent.mkdir()
    (tmp_path / setting).write_text(f"{value}\n")
    assert want in explain_forbidden(PermissionError(1, "Operation not permitted"), tmp_path)


def test_the_apparmor_profile_applies_to_one_program_only(tmp_path: Path) -> None:
    setting = tmp_path / "kernel" / "apparmor_restrict_unprivileged_userns"
    setting.parent.mkdir()
    setting.write_text("1\n")
    assert "sysctl" not in explain_forbidden(PermissionError(1, "Operation not permitted"), tmp_path)

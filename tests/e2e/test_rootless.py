"""A control plane of an unprivileged user supports exec, terminals and egress as root's does."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.local.node import masquerade
from tests.support.chaos import leftovers
from tests.support.external_host import HOST, outside
from tests.support.rootless import NOBODY, Python, RootlessPlane
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.timeout(240)]


def _pod(name: str, **spec: object) -> str:
    container = {"name": "main", "image": "local", "command": ["sleep", "1000"]}
    fields = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": fields})


@pytest.fixture(scope="module")
def rootless() -> Iterator[RootlessPlane]:
    python = Python.of_nobody()
    if python is None:
        pytest.skip("no Python with our dependencies that an unprivileged user may run")
    running = RootlessPlane.up(python)
    try:
        running.plane.kubectl("create", "-f", "-", stdin=_pod("talker"))
        running.plane.kubectl("wait", "--for=condition=Ready", "pod/talker", "--timeout=60s", timeout=70)
        yield running
    finally:
        running.argosy("down")
        left = leftovers(running.plane)
        running.down()
    assert left == []


def test_no_process_runs_as_root(rootless: RootlessPlane) -> None:
    home = str(rootless.plane.home).encode()
    owners = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                if home in (entry / "cmdline").read_bytes():
                    owners.add(entry.stat().st_uid)
            except OSError:
                continue
    assert owners == {NOBODY}


def test_exec_returns_output_and_exit_code(rootless: RootlessPlane) -> None:
    done = rootless.plane.kubectl("exec", "talker", "--", "sh", "-c", "id -u; echo bad >&2; exit 7", code=7)
    assert done.stdout == "0\n"
    assert done.stderr.startswith("bad\n")


def test_exec_sends_stdin_and_closes_it(rootless: RootlessPlane) -> None:
    done = rootless.plane.kubectl(
        "exec", "-i", "talker", "--", "sh", "-c", "tr a-z A-Z; echo over", stdin="some words\n"
    )
    assert done.stdout == "SOME WORDS\nover\n"


def test_exec_with_a_terminal_has_its_size_and_returns_the_exit_code(rootless: RootlessPlane) -> None:
    inside = "sh -c 'test -t 0 && until stty size | grep 33; do sleep 0.1; done; tty; exit 5'"
    command = f"kubectl --kubeconfig {rootless.plane.state.kubeconfig} exec -it talker -- {inside}"
    done = subprocess.run(
        ["script", "-qec", f"stty rows 33 cols 77; {command}", "/dev/null"],
        env=rootless.plane.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "33 77" in done.stdout
    assert "/dev/pts/0" in done.stdout
    assert done.returncode == 5


def test_pod_reaches_hosts_outside_the_cluster(rootless: RootlessPlane) -> None:
    if masquerade.find_program("pasta") is None or masquerade.find_tool() is None:
        pytest.skip("pasta, or both nft and iptables, are not installed")
    with outside() as url:
        script = f"import urllib.request as u; print(u.urlopen('{url}', timeout=10).read().decode())"
        done = rootless.plane.kubectl("exec", "talker", "--", "python3", "-c", script, code=None)
    assert done.stdout == f"hello {HOST}\n", done.stderr + rootless.argosy("status")


def test_nodes_are_lost_and_return_without_root(rootless: RootlessPlane) -> None:
    plane = rootless.plane
    rootless.argosy("nodes", "add", "spare")
    plane.kubectl("create", "-f", "-", stdin=_pod("guest", nodeName="spare"))
    plane.kubectl("wait", "--for=condition=Ready", "pod/guest", "--timeout=60s", timeout=70)
    assert "to guest on spare (main)" in plane.argosy("rehearse", "kill-pod", "guest").stdout
    restarts = ("get", "pod/guest", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
    wait_for(lambda: plane.kubectl(*restarts).stdout == "1", "the container is restarted")
    assert "its pods (1) were killed" in plane.argosy("rehearse", "stop-node", "spare", "--for", "0s").stdout
    wait_for(lambda: plane.kubectl(*restarts).stdout == "2", "the node is on again")
    assert "its pods (1) were killed" in plane.argosy("nodes", "remove", "spare").stdout
    plane.kubectl("delete", "pod/guest", "--force")
    assert "spare" not in plane.kubectl("get", "nodes").stdout


def test_status_lists_what_pods_lack_without_root(rootless: RootlessPlane) -> None:
    status = rootless.argosy("status")
    assert "limits are by rlimit: cgroups belong to root" in status
    has_egress = masquerade.find_program("pasta") is not None and masquerade.find_tool() is not None
    assert ("pods reach nothing outside the cluster" in status) is not has_egress

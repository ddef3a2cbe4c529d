"""Tests for rules of `nft` and `iptables`, in a temporary network namespace."""

import subprocess
import sys

import pytest

from argosy.local.node import masquerade

pytestmark = pytest.mark.root

_IN_A_NETWORK_OF_ITS_OWN = """
import subprocess, sys
from argosy.local.node import kernel, masquerade
kernel.unshare(kernel.NEW_NET)
tool, policy = sys.argv[1:]
masquerade.find_tool = lambda: tool
if policy:
    subprocess.run(["iptables", "-P", "FORWARD", policy], check=True)
def show():
    which = ["nft", "list", "ruleset"] if tool == "nft" else ["iptables-save"]
    print(subprocess.run(which, capture_output=True, text=True, check=True).stdout, "=" * 9)
for _ in range(2):
    assert masquerade.masquerade("argosy-ayup1", "100.64.0.2/30") == ""
    assert masquerade.allow_forwarding("ayup1") == ""
show()
masquerade.remove("argosy-ayup1", "100.64.0.2/30", "ayup1")
show()
"""


@pytest.mark.parametrize(
    ("tool", "policy", "want"),
    [
        pytest.param("nft", "", {"masquerade": 1, "ayup1": 1}, id="by nft, once though asked twice"),
        pytest.param(
            "iptables", "", {"MASQUERADE": 1, "ayup1": 0}, id="by iptables, once though asked twice"
        ),
        pytest.param(
            "iptables", "DROP", {"MASQUERADE": 1, "ayup1": 2}, id="let through where nothing else passes"
        ),
    ],
)
def test_all_added_rules_are_removed(tool: str, policy: str, want: dict[str, int]) -> None:
    if masquerade.find_program(tool) is None or (policy and masquerade.find_program("iptables") is None):
        pytest.skip(f"{tool} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_NETWORK_OF_ITS_OWN, tool, policy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    added, removed, _ = done.stdout.split("=" * 9)
    assert {word: added.count(word) for word in want} == want, added
    assert {word: removed.count(word) for word in want} == dict.fromkeys(want, 0), removed

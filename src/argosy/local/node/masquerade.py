"""Sets up network address translation for outgoing traffic with `nft` or `iptables`.

Rules are named after the cluster's link, so they can be set up repeatedly and removed by name. Functions that
set something up return a problem as text, empty if there is none.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence


def find_tool() -> str | None:
    return next((name for name in ("nft", "iptables") if find_program(name)), None)


def find_program(name: str) -> str | None:
    """Return the path of a program, also in the sbin folders, which may not be in PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def masquerade(table: str, source: str) -> str:
    """Masquerade traffic from these addresses to all others."""
    tool = find_tool()
    if tool is None:
        return "neither nft nor iptables is installed"
    if tool == "nft":
        rule = f"ip saddr {source} ip daddr != {source} masquerade"
        chain = f"chain out {{\n type nat hook postrouting priority 100;\n {rule}\n }}"
        return _run(
            ["nft", "-f", "-"],
            f"table ip {table}\ndelete table ip {table}\ntable ip {table} {{\n{chain}\n}}\n",
        )
    return _insert(["POSTROUTING", "-s", source, "!", "-d", source, "-j", "MASQUERADE"], table="nat")


def allow_forwarding(link: str) -> str:
    """Allow forwarding for a link, which machines with Docker drop by default."""
    if find_program("iptables") is None:
        return ""
    policy = subprocess.run(
        [find_program("iptables") or "", "-S", "FORWARD"], capture_output=True, text=True, check=False
    ).stdout
    if not policy.startswith("-P FORWARD DROP"):
        return ""
    return next(filter(None, (_insert(rule) for rule in _forward_rules(link))), "")


def remove(table: str, source: str, link: str) -> None:
    """Remove all rules, with whichever tool they were added."""
    if find_program("nft"):
        _run(["nft", "delete", "table", "ip", table])
    if find_program("iptables"):
        out = ["POSTROUTING", "-s", source, "!", "-d", source, "-j", "MASQUERADE"]
        for rule, where in ((out, "nat"), *((rule, "filter") for rule in _forward_rules(link))):
            _run(["iptables", "-w", "-t", where, "-D", *rule])


def _forward_rules(link: str) -> list[list[str]]:
    return [["FORWARD", flag, link, "-j", "ACCEPT"] for flag in ("-i", "-o")]


def _insert(rule: Sequence[str], table: str = "filter") -> str:
    """Insert a rule at the front of its chain, unless it exists."""
    if _run(["iptables", "-w", "-t", table, "-C", *rule]) == "":
        return ""
    return _run(["iptables", "-w", "-t", table, "-I", *rule])


def _run(command: Sequence[str], text: str = "") -> str:
    program = find_program(command[0]) or command[0]
    completed = subprocess.run(
        [program, *command[1:]], input=text, capture_output=True, text=True, check=False
    )
    if completed.returncode == 0:
        return ""
    errors = completed.stderr.strip().splitlines() or [f"exit code {completed.returncode}"]
    return f"{command[0]} failed: {errors[0]}"

import shutil
import subprocess
from pathlib import Path

import pytest

from argosy.dialects.et.files import deepspeed_hostfile, discover_hosts, hostfile, script_hosts

HOSTS = ("j-worker-0", "j-worker-1")


def test_host_lists() -> None:
    """Case 3: the hostfile has a line for each worker and ends with a newline."""
    assert hostfile(HOSTS, 1) == "j-worker-0:1\nj-worker-1:1\n"
    assert deepspeed_hostfile(HOSTS, 8) == "j-worker-0 slots=8\nj-worker-1 slots=8\n"
    assert script_hosts(HOSTS, 1) == "j-worker-0:1,j-worker-1:1"


def test_empty_host_list_is_an_empty_file() -> None:
    assert hostfile((), 1) == ""
    assert deepspeed_hostfile((), 1) == ""


SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]

CONTENTS = {
    "two hosts: printed": ("j-worker-0:1\nj-worker-1:1\n", "j-worker-0:1\nj-worker-1:1\n"),
    "no final newline: added": ("j-worker-0:1", "j-worker-0:1\n"),
    "backslashes and blanks: printed as they are": ("a\\n b  c\t\n", "a\\n b  c\t\n"),
    "empty file: nothing": ("", ""),
    "no file: nothing": (None, ""),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("content", "want"), CONTENTS.values(), ids=CONTENTS.keys())
def test_discover_hosts_prints_the_host_list(
    shell: str, content: str | None, want: str, tmp_path: Path
) -> None:
    """Case 4: it runs without bash, and without any program but the shell."""
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    if content is not None:
        (folder / "hostfile").write_text(content)
    script = tmp_path / "discover_hosts.sh"
    script.write_text(discover_hosts(str(folder / "hostfile")))
    command = [shutil.which(shell) or shell, *(["sh"] if shell == "busybox" else []), str(script)]
    done = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, want, "")


def test_discover_hosts_reads_the_file_that_is_kept_current() -> None:
    assert discover_hosts().startswith("#!/bin/sh\n")
    assert "< /etc/edl/hostfile\n" in discover_hosts()

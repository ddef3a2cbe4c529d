"""Tests for generated ssh keys: OpenSSH reads them, pairs match, and every job has its own."""

import subprocess
from pathlib import Path

from argosy.reconcile.sshkeys import KEY_FILES, key_files


def test_the_public_key_is_that_of_the_private_one(tmp_path: Path) -> None:
    files = key_files(verify_hosts=False)
    assert tuple(files) == KEY_FILES
    private = tmp_path / "id_ed25519"
    private.write_bytes(files["id_ed25519"])
    private.chmod(0o600)
    command = ["ssh-keygen", "-y", "-f", str(private)]
    public = subprocess.run(command, capture_output=True, check=True).stdout
    assert public.split()[:2] == files["id_ed25519.pub"].split()[:2]
    assert files["authorized_keys"] == files["id_ed25519.pub"]


def test_every_job_has_other_keys() -> None:
    assert key_files(verify_hosts=False)["id_ed25519"] != key_files(verify_hosts=False)["id_ed25519"]


def test_ssh_accepts_only_the_host_key_of_the_job(tmp_path: Path) -> None:
    files = key_files(verify_hosts=True)
    config = tmp_path / "config"
    config.write_bytes(files["config"])
    command = ["ssh", "-F", str(config), "-G", "worker-0"]
    options = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"stricthostkeychecking true", "hostkeyalgorithms ssh-ed25519"} <= set(options)
    host_key = tmp_path / "host"
    host_key.write_bytes(files["ssh_host_ed25519_key"])
    host_key.chmod(0o600)
    shown = subprocess.run(["ssh-keygen", "-y", "-f", host_key], capture_output=True, check=True).stdout
    assert files["known_hosts"].split()[:3] == [b"*", *shown.split()[:2]]


def test_ssh_does_not_ask_about_hosts(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_bytes(key_files(verify_hosts=False)["config"])
    command = ["ssh", "-F", str(config), "-G", "worker-0"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"stricthostkeychecking false", "userknownhostsfile /dev/null", "connectionattempts 30"} <= set(
        lines
    )

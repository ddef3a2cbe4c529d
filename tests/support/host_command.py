"""A command that plays the host of a node agent: it answers probes of CRIU and of the container runtime."""

from pathlib import Path


def host_command(folder: Path, criu: str, config: str) -> tuple[str, ...]:
    """Return the command; the script that tries CRIU prints `criu`, every other command `config`."""
    (folder / "criu-output").write_text(criu)
    (folder / "config-output").write_text(config)
    script = folder / "host"
    is_probe = '[ "$1" = sh ]'
    lines = ("#!/bin/sh", f"{is_probe} && exec cat {folder}/criu-output", f"exec cat {folder}/config-output")
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    return (str(script),)

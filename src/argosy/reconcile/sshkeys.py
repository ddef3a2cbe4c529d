"""A key pair for ssh with what goes beside it in `~/.ssh`: who has the files reaches who has them.

Made at random, and so here and not where is decided. The pods of a job have all come from its definition:
whom they meet under a host's name is not asked.
"""

from collections.abc import Mapping

KEY_FILES = ("id_ed25519", "id_ed25519.pub", "authorized_keys", "config")

CONFIG = b"""Host *
  IdentityFile ~/.ssh/id_ed25519
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ConnectionAttempts 30
"""
"""A pod runs a moment before the sshd in it listens: ssh tries again every second. Warnings about hosts that
it does not know would stand among what ranks say."""


def key_files() -> Mapping[str, bytes]:
    """The files by name, with another key pair each time."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return dict(zip(KEY_FILES, (private, public, public, CONFIG), strict=True))

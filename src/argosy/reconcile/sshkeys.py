"""Makes the files of `~/.ssh` for the pods of one job: a key pair to log in with, and a host key for sshd.

They are random, so they are made where actions are executed, not where they are decided. Whoever has the
files may log in to whoever has them. Where every sshd of the job is started by us, ssh also rejects hosts
that do not show the job's host key, so that a pod which has taken over a name or an address gets nothing.
"""

from base64 import b64encode
from collections.abc import Mapping
from functools import partial

from argosy.plan.children import Json
from argosy.reconcile.child_executor import Generator
from argosy.workload.children import SSH_KEYS, SSH_KEYS_AND_HOSTS, SSH_KEYS_NAMED_RSA

KEY_FILES = (
    "id_ed25519",
    "id_ed25519.pub",
    "authorized_keys",
    "ssh_host_ed25519_key",
    "known_hosts",
    "config",
)

CONFIG = """Host *
  IdentityFile ~/.ssh/id_ed25519
  LogLevel ERROR
  ConnectionAttempts 30
"""
"""A pod runs a moment before the sshd in it listens: ssh tries again every second. Warnings about hosts that
it does not know would stand among the output of ranks."""

VERIFYING = """  StrictHostKeyChecking yes
  UserKnownHostsFile ~/.ssh/known_hosts
  HostKeyAlgorithms ssh-ed25519
"""

TRUSTING = """  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
"""


def key_files(*, verify_hosts: bool) -> Mapping[str, bytes]:
    """Return the files by name, with other keys each time."""
    private, public = _key_pair()
    host_private, host_public = _key_pair()
    config = CONFIG + (VERIFYING if verify_hosts else TRUSTING)
    contents = (private, public, public, host_private, b"* " + host_public, config.encode())
    return dict(zip(KEY_FILES, contents, strict=True))


def _secret_data(*, verify_hosts: bool) -> Json:
    files = key_files(verify_hosts=verify_hosts)
    return {"data": {name: b64encode(content).decode() for name, content in files.items()}}


def _secret_data_named_rsa() -> Json:
    """Return a key pair and a configuration, under the names that et-operator gives them."""
    private, public = _key_pair()
    files = {"id_rsa": private, "id_rsa.pub": public, "config": ("Host *\n" + TRUSTING).encode()}
    return {"data": {name: b64encode(content).decode() for name, content in files.items()}}


GENERATORS: Mapping[str, Generator] = {
    SSH_KEYS_NAMED_RSA: _secret_data_named_rsa,
    SSH_KEYS: partial(_secret_data, verify_hosts=False),
    SSH_KEYS_AND_HOSTS: partial(_secret_data, verify_hosts=True),
}


def _key_pair() -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), public

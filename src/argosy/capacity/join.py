"""How a machine joins the cluster: the data that it needs, and the command at the end of its startup script.

The data stands in a Secret of the user. Values of the template fill keys that are missing there. The token
may be `auto`: then every machine gets a bootstrap token of its own. The command is put together by the driver
at the moment of the request, so that no token is ever part of a Record, an action or a log.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

TOKEN: Final = "token"  # noqa: S105
CA_CERT_HASH: Final = "ca-cert-hash"
ENDPOINT: Final = "control-plane-endpoint"
KEYS: Final = (TOKEN, CA_CERT_HASH, ENDPOINT)

AUTO: Final = "auto"
"""The token that asks for one for each machine."""

JOIN_ROLE: Final = "join"
"""The role of the Secret with join data among the Secrets of a call; see `plan.actions.Call`."""

TOKEN_ROLE: Final = "bootstrap"  # noqa: S105
"""The role of the Secret with the machine's own token."""

TOKEN_NAMESPACE: Final = "kube-system"  # noqa: S105
"""Where Kubernetes expects bootstrap tokens."""


TOKEN_DRIVER: Final = "bootstrap-tokens"  # noqa: S105
"""The driver that makes and deletes machines' own tokens."""


class CreateToken(Struct, frozen=True):
    """Make the Secret of a bootstrap token, with which objects of a namespace may have machines join.

    A token that this object has already stays as it is.
    """

    id: str
    uid: str
    """Of the object that it is made for."""
    namespace: str
    expires: str


class DeleteToken(Struct, frozen=True):
    """Delete a token that was made for this object."""

    id: str
    uid: str


def token_secret(token_id: str) -> str:
    """Return the name of the Secret of a bootstrap token."""
    return f"bootstrap-token-{token_id}"


class JoinPlan(Struct, frozen=True):
    """Where the join data of a machine is."""

    secret: str
    """Name of the user's Secret."""
    ca_cert_hash: str = ""
    """Used if the Secret has none."""
    endpoint: str = ""
    """Used if the Secret has none."""
    token_id: str = ""
    """The machine's own token; empty if the Secret has the token."""


class JoinData(Struct, frozen=True):
    token: str
    ca_cert_hash: str
    endpoint: str

    @property
    def command(self) -> str:
        """Return the command that makes a machine a node."""
        return (
            f"kubeadm join {self.endpoint} --token {self.token}"
            f" --discovery-token-ca-cert-hash {self.ca_cert_hash}"
        )


def join_values(plan: JoinPlan, secret: Mapping[str, bytes]) -> dict[str, str]:
    """Return the join data by key, as far as it is known; the Secret wins over the template."""
    filled = {CA_CERT_HASH: plan.ca_cert_hash, ENDPOINT: plan.endpoint}
    from_secret = {key: _text(secret.get(key, b"")) for key in KEYS}
    return {key: from_secret[key] or filled.get(key, "") for key in KEYS}


def missing_keys(plan: JoinPlan, secret: Mapping[str, bytes]) -> list[str]:
    """Return the keys that neither the Secret nor the template has."""
    return [key for key, value in join_values(plan, secret).items() if not value]


def mismatches(plan: JoinPlan, secret: Mapping[str, bytes]) -> list[str]:
    """Return the keys for which the Secret says something else than the template."""
    expected = {CA_CERT_HASH: plan.ca_cert_hash, ENDPOINT: plan.endpoint}
    from_secret = {key: _text(secret.get(key, b"")) for key in expected}
    return [key for key, value in expected.items() if value and from_secret[key] not in ("", value)]


def join_data(plan: JoinPlan, secrets: Mapping[str, bytes]) -> JoinData | None:
    """Return the join data from the Secrets of a call; None if something is missing.

    Values with spaces or line breaks count as missing: they would add commands to the startup script.
    """
    prefix = f"{JOIN_ROLE}/"
    secret = {key.removeprefix(prefix): value for key, value in secrets.items() if key.startswith(prefix)}
    values = join_values(plan, secret)
    if values[TOKEN] == AUTO:
        parts = [_text(secrets.get(f"{TOKEN_ROLE}/{key}", b"")) for key in ("token-id", "token-secret")]
        values[TOKEN] = ".".join(parts) if all(parts) else ""
    data = JoinData(values[TOKEN], values[CA_CERT_HASH], values[ENDPOINT])
    return data if all(values.values()) else None


def startup_script(script: str, join: JoinData) -> str:
    """Return the script that a machine runs when it starts; joining is the last line."""
    return f"{script or '#!/bin/bash'}\n{join.command}"


def choose_token_id(uid: str, attempt: int) -> str:
    """Return the id of a machine's own token: six characters, the same for each repetition of an attempt."""
    number = int.from_bytes(hashlib.sha256(f"{uid}/{attempt}".encode()).digest()[:8])
    characters = []
    for _ in range(6):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return "".join(characters)


_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def _text(value: bytes) -> str:
    """Return a value as text; empty if it is not one word of printable ASCII."""
    try:
        text = value.decode("ascii").strip()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() and " " not in text else ""

"""Checks the JSON of a service account of Google Cloud, which users write."""

from collections.abc import Mapping
from typing import Final

import msgspec

from argosy.capacity.provider import INVALID_CREDENTIALS
from argosy.plan.drivers import Refusal

CREDENTIALS_KEY: Final = "credentials.json"
"""The key of a Secret with such a JSON."""


def check_account(content: bytes) -> Mapping[str, object]:
    """Return the JSON of a service account; raises `Refusal` if it is something else."""
    try:
        info = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise Refusal(INVALID_CREDENTIALS, f"{CREDENTIALS_KEY}: invalid JSON: {error}") from None
    if not isinstance(info, dict) or info.get("type") != "service_account":
        raise Refusal(INVALID_CREDENTIALS, f"{CREDENTIALS_KEY}: must be the JSON of a service account")
    for field in ("client_email", "private_key"):
        if not isinstance(info.get(field), str) or not info[field]:
            raise Refusal(INVALID_CREDENTIALS, f"{CREDENTIALS_KEY}: {field} is missing")
    return info

"""Access tokens for Google Cloud from the JSON of a service account.

A token is signed here, with the account's own key (a self-signed JWT), so that no request is needed for it.
The JSON is written by users, and other kinds of credentials may name URLs and programs; only service accounts
are accepted, and whatever URL their JSON names is not used. `google-auth` is imported when the first token is
needed.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from argosy.capacity.provider import INVALID_CREDENTIALS
from argosy.capacity.providers.gce import CLOUD_PLATFORM
from argosy.capacity.providers.gce_account import CREDENTIALS_KEY, check_account
from argosy.plan.drivers import Refusal

MAX_ACCOUNTS: Final = 256
"""Accounts whose tokens are kept."""


class Tokens:
    """Tokens of service accounts, each kept until shortly before it expires."""

    def __init__(self) -> None:
        self._accounts: dict[str, Any] = {}

    async def token(self, credentials: Mapping[str, bytes]) -> str:
        """Return a valid token; raises `Refusal` if the credentials are not those of a service account."""
        content = credentials.get(CREDENTIALS_KEY, b"")
        digest = hashlib.sha256(content).hexdigest()
        account = self._accounts.pop(digest, None) or _account(content)
        self._accounts[digest] = account  # the newest last
        while len(self._accounts) > MAX_ACCOUNTS:
            del self._accounts[next(iter(self._accounts))]
        if not account.valid:
            await asyncio.to_thread(_refresh, account)
        return str(account.token)


def _account(content: bytes) -> Any:
    info = dict(check_account(content))
    from google.oauth2 import service_account

    info.setdefault("token_uri", "https://oauth2.googleapis.com/token")
    load: Callable[..., Any] = service_account.Credentials.from_service_account_info
    try:
        return load(info, scopes=[CLOUD_PLATFORM], always_use_jwt_access=True)
    except ValueError:
        raise Refusal(INVALID_CREDENTIALS, f"{CREDENTIALS_KEY}: private_key is not a key") from None


def _refresh(account: Any) -> None:
    account.refresh(_no_request)


def _no_request(*_args: object, **_options: object) -> None:
    """Takes the place of google-auth's transport: no request is made for a token."""
    raise Refusal(INVALID_CREDENTIALS, f"{CREDENTIALS_KEY}: this kind of account needs requests for a token")

"""Authenticates requests by bearer tokens: static ones of the control plane, and those of service accounts.

A file maps static tokens to users. The token of a service account is a JWT that this server signed; it is
valid while its account exists, and the pod that it is bound to.
"""

from pathlib import Path

import msgspec

from argosy.local.apiserver.http import ANONYMOUS, Request, User
from argosy.local.apiserver.status import unauthorized
from argosy.local.apiserver.tokens import Signer


class _Identity(msgspec.Struct):
    user: str
    uid: str = ""
    groups: list[str] = []


class Authenticator:
    def __init__(self, tokens: Path, signer: Signer) -> None:
        self._path, self._signer = tokens, signer
        self._users: dict[str, User] = {}
        self._read_at: tuple[int, int] = (0, 0)
        self._reload()

    def user(self, request: Request) -> User:
        """Return the user of a request; 401 if its token is invalid."""
        header = request.header(b"authorization")
        if not header:
            return ANONYMOUS
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        user = self.find(token.strip())
        if user is None:
            raise unauthorized()
        return user

    def find(self, token: str, audiences: list[str] | None = None) -> User | None:
        """Return the user of a static token, or of a service account token for one of these audiences."""
        if user := self._users.get(token):
            return user
        if token.count(".") == 2:
            return self._signer.user(token, audiences)
        self._reload()
        return self._users.get(token)

    def _reload(self) -> None:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._read_at:
                return
            entries = msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Identity])
        except (FileNotFoundError, msgspec.MsgspecError):
            return
        self._read_at = stamp
        self._users = {
            token: User(entry.user, entry.uid, (*entry.groups, "system:authenticated"))
            for token, entry in entries.items()
        }

"""Who is asking: bearer tokens of the control plane's own parts, and of service accounts.

The file of static tokens maps a token to a user. A service account's token is a JWT that this server signed;
it counts only while its account, and the pod it is bound to, exist.
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
        """The user of a request; 401 when it brings a token that is not good."""
        header = request.header(b"authorization")
        if not header:
            return ANONYMOUS
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        found = self.find(token.strip())
        if found is None:
            raise unauthorized()
        return found

    def find(self, token: str, audiences: list[str] | None = None) -> User | None:
        """The user of a token, static or a service account's for one of these audiences."""
        found = self._users.get(token)
        if found is not None:
            return found
        if token.count(".") == 2:
            return self._signer.user(token, audiences)
        self._reload()
        return self._users.get(token)

    def _reload(self) -> None:
        try:
            seen = self._path.stat()
            stamp = (seen.st_mtime_ns, seen.st_size)
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

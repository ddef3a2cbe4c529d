"""Authenticates to a registry: basic authentication, or a bearer token of the server that it names."""

import re
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from argosy.checkpoint.drivers.registry_http import RegistryError, RegistryHttp, check_status
from argosy.checkpoint.registry_login import Login

_CHALLENGE = re.compile(r'([A-Za-z]+)=("[^"]*"|[^\s,"]+)|([A-Za-z][A-Za-z0-9-]*)(?=\s|,|$)')


class _Token(Struct):
    token: str = ""
    access_token: str = ""


class Authorizer:
    """Remembers by scope, such as `repository:a/b:pull`, what to authenticate requests with."""

    def __init__(self, http: RegistryHttp, login: Login | None) -> None:
        self._http = http
        self._login = login
        self._headers: dict[str, str] = {}

    def headers(self, scope: str) -> Mapping[str, str]:
        value = self._headers.get(scope)
        return {"Authorization": value} if value else {}

    async def answer(self, challenge: str, scope: str, sent: Mapping[str, str]) -> bool:
        """Authenticate after status 401; returns False if a request with `sent` would only be repeated.

        Of requests at the same time the first one authenticates for the others.
        """
        schemes = parse_challenge(challenge)
        value = ""
        if "bearer" in schemes:
            value = await self._bearer(schemes["bearer"], scope)
        elif "basic" in schemes and self._login is not None:
            value = self._login.basic
        if value:
            self._headers[scope] = value
        return bool(value) and value != sent.get("Authorization")

    async def _bearer(self, parameters: Mapping[str, str], scope: str) -> str:
        realm = self._http.resolve(self._http.base, parameters.get("realm", ""))
        query = {"scope": scope} if scope else {}
        if service := parameters.get("service"):
            query["service"] = service
        separator = "&" if urlsplit(realm).query else "?"
        url = f"{realm}{separator}{urlencode(query)}" if query else realm
        headers = {"Authorization": self._login.basic} if self._login else {}
        response = await self._http.send("GET", url, {**headers, "Accept": "application/json"})
        check_status(response, 200, "token of the registry", response.body)
        try:
            answer = msgspec.json.decode(response.body, type=_Token)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RegistryError("InvalidResponse", f"token of the registry: {error}") from error
        token = answer.token or answer.access_token
        if not token or not token.isascii() or not token.isprintable():
            raise RegistryError("InvalidResponse", "token of the registry: there is none in the answer")
        return f"Bearer {token}"


def parse_challenge(header: str) -> dict[str, dict[str, str]]:
    """Return the parameters of each scheme in `WWW-Authenticate`, with schemes and names in lower case."""
    schemes: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for name, value, scheme in _CHALLENGE.findall(header):
        if scheme:
            current = schemes.setdefault(scheme.lower(), {})
        else:
            current[name.lower()] = value.strip('"')
    return schemes

"""Notices of Amazon EC2: the end of Spot instances, and the recommendation to rebalance.

The metadata service (IMDSv2) has no long poll; it is asked every few seconds, with a session token. There is
no document (404) while nothing is announced.
"""

from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Struct

from argosy.agent.notices.base import DEFAULT_ENDPOINT, Metadata, MetadataError, Notice, Report, poll
from argosy.engine.clock import Clock, SystemClock

T = TypeVar("T", bound=Struct)
AwareTime = Annotated[datetime, msgspec.Meta(tz=True)]

POLL_SECONDS = 5.0
TOKEN_SECONDS = 21_600
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105 - the name of a header

INSTANCE_ACTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"


class _InstanceAction(Struct):
    action: str
    time: AwareTime


class _Rebalance(Struct, rename="camel"):
    notice_time: AwareTime


class Ec2Notices:
    """Asks for both documents."""

    prefix = "ec2-"

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, *, clock: Clock = SystemClock()) -> None:
        self._metadata = Metadata(endpoint)
        self._clock = clock
        self._token = ""

    async def run(self, report: Report) -> None:
        try:
            await poll(self._read, report, POLL_SECONDS)
        finally:
            await self._metadata.close()

    async def acknowledge(self) -> None:
        """Do nothing: an instance is taken back at its time."""

    async def _read(self) -> tuple[Notice, ...]:
        notices: list[Notice] = []
        if (body := await self._document(INSTANCE_ACTION)) is not None:
            action = _decode(body, _InstanceAction)
            # Hibernation begins with its notice.
            immediate = action.action == "hibernate"
            deadline = self._clock.now().replace(microsecond=0) if immediate else action.time
            notices.append(Notice(f"{self.prefix}spot-{action.action[:20]}", deadline))
        if (body := await self._document(REBALANCE)) is not None:
            rebalance = _decode(body, _Rebalance)
            notices.append(Notice(f"{self.prefix}rebalance", rebalance.notice_time, is_hint=True))
        return tuple(notices)

    async def _document(self, path: str) -> bytes | None:
        """Return a document, None if there is none; gets a new token when the old one has expired."""
        for _ in range(2):
            if not self._token:
                self._token = await self._new_token()
            response = await self._metadata.get(path, {TOKEN_HEADER: self._token})
            if response.status == 401:
                self._token = ""
                continue
            if response.status == 404:
                return None
            if response.status != 200:
                raise MetadataError(f"{path}: status {response.status}")
            return response.body
        raise MetadataError(f"{path}: the token was not accepted")

    async def _new_token(self) -> str:
        headers = {f"{TOKEN_HEADER}-ttl-seconds": str(TOKEN_SECONDS)}
        response = await self._metadata.send("PUT", "/latest/api/token", headers)
        token = response.body[:1000].decode("ascii", "replace").strip()
        if response.status != 200 or not token.isprintable() or " " in token:
            raise MetadataError(f"no token: status {response.status}")
        return token


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MetadataError(f"invalid document: {error}") from error

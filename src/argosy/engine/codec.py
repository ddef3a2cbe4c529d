"""From bytes to objects and back: one set of compiled decoders per kind.

Lists and watches decode straight into the kind's struct, one pass over the bytes. One object that does not
fit its type must not hide the others, so what fails to decode is decoded again piece by piece, and the bad
piece comes out as `Undecodable` instead of an exception.
"""

from collections.abc import Mapping, Sequence
from types import GenericAlias
from typing import Generic, Literal, TypeVar, cast

import msgspec
from msgspec import Struct, field

from argosy.engine.decode_errors import CUT, TOO_DEEP, locate_error, truncate_nesting
from argosy.engine.dynamic import AnyObject, Json, decode_any
from argosy.engine.errors import ApiError, Status, Unavailable, error_from_status
from argosy.engine.objects import ApiObject, T
from argosy.kinds.meta import ObjectMeta

Body = Mapping[str, object] | Struct
R = TypeVar("R")


class WatchEvent(Struct, Generic[T]):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class Bookmark(Struct, gc=False):
    """The watch has come as far as this version; after the initial events it says that they are complete."""

    resource_version: str
    initial_events_end: bool = False


class Undecodable(Struct):
    """An object that does not fit its type: which one, what is wrong with it and where."""

    metadata: ObjectMeta
    path: str
    problem: str
    raw: msgspec.Raw = msgspec.Raw()
    """All of it."""
    deleted: bool = False
    """In a watch: this was the last of it."""


class Page(Struct, Generic[T]):
    metadata: "PageMeta"
    items: list[T]
    undecodable: list[Undecodable] = field(default_factory=list)


class PageMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class Codec(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        # Given a hook, msgspec asks it about every value of a `dict[str, object]` in typed kinds, too.
        hook = decode_any if issubclass(kind, AnyObject) else None
        self._object = msgspec.json.Decoder(kind, dec_hook=hook)
        self._page = msgspec.json.Decoder(GenericAlias(Page, (kind,)), dec_hook=hook)
        self._event = msgspec.json.Decoder(GenericAlias(WatchEvent, (kind,)), dec_hook=hook)

    def object(self, body: bytes) -> T:
        try:
            return self._object.decode(body)
        except msgspec.ValidationError as error:
            kind = self.kind.resource.kind
            raise ApiError(200, UNDECODABLE, f"the {kind} does not fit its type: {error}") from error
        except RecursionError:
            raise ApiError(200, UNDECODABLE, f"the {self.kind.resource.kind} is {TOO_DEEP}") from None
        except GARBLED as error:
            raise _garbled(error) from error

    def page(self, body: bytes) -> Page[T]:
        try:
            return cast("Page[T]", self._page.decode(body))
        except MISFITS:
            return self._page_by_piece(body)
        except GARBLED as error:
            raise _garbled(error) from error

    def _page_by_piece(self, body: bytes) -> Page[T]:
        raw = _readable(_raw_page, body)
        page: Page[T] = Page(metadata=raw.metadata, items=[])
        for item in raw.items or ():
            if CUT in bytes(item):
                page.undecodable.append(_too_deep(item))
                continue
            try:
                page.items.append(self._object.decode(item))
            except msgspec.ValidationError as error:
                page.undecodable.append(self._undecodable(item, error))
        return page

    def event(self, line: bytes) -> WatchEvent[T] | Bookmark | Undecodable:
        """One line of a watch. Raises the typed error when the line is an ERROR event."""
        try:
            return cast("WatchEvent[T]", self._event.decode(line))
        except MISFITS as error:
            return self._other_event(line, error)
        except GARBLED as error:
            raise _garbled(error) from error

    def _other_event(
        self, line: bytes, error: msgspec.ValidationError | RecursionError
    ) -> Bookmark | Undecodable:
        raw = _readable(_raw_event, line)
        if raw.type == "BOOKMARK":
            meta = _meta_of(raw.object)
            end = meta.annotations.get(INITIAL_EVENTS_END) == "true"
            return Bookmark(meta.resource_version, end)
        if raw.type == "ERROR":
            raise error_from_status(msgspec.json.decode(raw.object, type=Status))
        if isinstance(error, RecursionError) or CUT in bytes(raw.object):
            bad = _too_deep(raw.object)
        else:
            bad = self._undecodable(raw.object, error)
        bad.deleted = raw.type == "DELETED"
        return bad

    def _undecodable(self, raw: msgspec.Raw, error: msgspec.ValidationError) -> Undecodable:
        try:
            self._object.decode(raw)
        except msgspec.ValidationError as own:
            error = own  # its path begins at the object, not at what the object came in
        path, problem = locate_error(self._object.decode, bytes(raw), error)
        return Undecodable(_meta_of(raw), path, problem, raw.copy())


def encode_body(body: Body | Sequence[Mapping[str, object]], kind: type[ApiObject] | None = None) -> bytes:
    """A request body; apiVersion and kind are filled in from `kind` when an object lacks them."""
    if kind is None or not isinstance(body, Mapping | Struct):
        return msgspec.json.encode(body)
    fields: Json = dict(body) if isinstance(body, Mapping) else msgspec.to_builtins(body)
    fields.setdefault("apiVersion", kind.resource.api_version)
    fields.setdefault("kind", kind.resource.kind)
    return msgspec.json.encode(fields)


UNDECODABLE = "Undecodable"
"""The reason of an error about an answer whose object does not fit its type: what was asked for is done."""
MISFITS = (msgspec.ValidationError, RecursionError)
GARBLED = (msgspec.DecodeError, UnicodeDecodeError)


def _garbled(error: Exception) -> Unavailable:
    return Unavailable(0, "Garbled", f"the answer is not JSON, or only a part of it: {error}")


INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _RawEvent(Struct):
    type: str
    object: msgspec.Raw


class _RawPage(Struct):
    metadata: PageMeta
    items: list[msgspec.Raw] | None = None


class _OnlyMeta(Struct):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


_raw_event = msgspec.json.Decoder(_RawEvent)
_raw_page = msgspec.json.Decoder(_RawPage)
_only_meta = msgspec.json.Decoder(_OnlyMeta)


def _readable(decoder: "msgspec.json.Decoder[R]", text: bytes) -> R:
    """What can be read of it, with what is too deep cut away."""
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(truncate_nesting(text))


def _too_deep(raw: msgspec.Raw) -> Undecodable:
    return Undecodable(_meta_of(raw), "spec", f"is {TOO_DEEP}", raw.copy())


def _meta_of(raw: msgspec.Raw) -> ObjectMeta:
    try:
        return _only_meta.decode(raw).metadata
    except msgspec.ValidationError:
        return ObjectMeta()

"""Decodes objects, lists and watch events, and encodes request bodies.

Lists and watch events are decoded straight into the kind's struct, in one pass over the bytes. A list with an
object that cannot be decoded is decoded again object by object: the bad one becomes an `Undecodable`, and the
others are returned.
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
    """The watch has delivered everything up to this version. One bookmark ends the initial events."""

    resource_version: str
    initial_events_end: bool = False


class Undecodable(Struct):
    """An object that could not be decoded, with the path and the problem."""

    metadata: ObjectMeta
    path: str
    problem: str
    raw: msgspec.Raw = msgspec.Raw()
    """The whole object."""
    deleted: bool = False
    """True if the watch event was a deletion."""


class Page(Struct, Generic[T]):
    """One page of a list."""

    metadata: "PageMeta"
    items: list[T]
    undecodable: list[Undecodable] = field(default_factory=list)


class PageMeta(Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class Codec(Generic[T]):
    """The compiled decoders of one kind."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        # msgspec calls a hook for every value of a `dict[str, object]`, also in typed kinds.
        hook = decode_any if issubclass(kind, AnyObject) else None
        self._object = msgspec.json.Decoder(kind, dec_hook=hook)
        self._page = msgspec.json.Decoder(GenericAlias(Page, (kind,)), dec_hook=hook)
        self._event = msgspec.json.Decoder(GenericAlias(WatchEvent, (kind,)), dec_hook=hook)

    def object(self, body: bytes) -> T:
        try:
            return self._object.decode(body)
        except msgspec.ValidationError as error:
            kind = self.kind.resource.kind
            raise ApiError(200, UNDECODABLE, f"the {kind} cannot be decoded: {error}") from error
        except RecursionError:
            raise ApiError(200, UNDECODABLE, f"the {self.kind.resource.kind} is {TOO_DEEP}") from None
        except INVALID_JSON as error:
            raise _invalid_json(error) from error

    def page(self, body: bytes) -> Page[T]:
        try:
            return cast("Page[T]", self._page.decode(body))
        except UNDECODABLE_ERRORS:
            return self._page_by_object(body)
        except INVALID_JSON as error:
            raise _invalid_json(error) from error

    def _page_by_object(self, body: bytes) -> Page[T]:
        raw = _decode_truncated(_raw_page, body)
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
        """Decode one line of a watch. An ERROR event is raised as the typed error."""
        try:
            return cast("WatchEvent[T]", self._event.decode(line))
        except UNDECODABLE_ERRORS as error:
            return self._other_event(line, error)
        except INVALID_JSON as error:
            raise _invalid_json(error) from error

    def _other_event(
        self, line: bytes, error: msgspec.ValidationError | RecursionError
    ) -> Bookmark | Undecodable:
        raw = _decode_truncated(_raw_event, line)
        if raw.type == "BOOKMARK":
            meta = _meta_of(raw.object)
            end = meta.annotations.get(INITIAL_EVENTS_END) == "true"
            return Bookmark(meta.resource_version, end)
        if raw.type == "ERROR":
            raise error_from_status(msgspec.json.decode(raw.object, type=Status))
        if isinstance(error, RecursionError) or CUT in bytes(raw.object):
            undecodable = _too_deep(raw.object)
        else:
            undecodable = self._undecodable(raw.object, error)
        undecodable.deleted = raw.type == "DELETED"
        return undecodable

    def _undecodable(self, raw: msgspec.Raw, error: msgspec.ValidationError) -> Undecodable:
        try:
            self._object.decode(raw)
        except msgspec.ValidationError as own:
            error = own  # its path begins at the object, not at the event or list around it
        path, problem = locate_error(self._object.decode, bytes(raw), error)
        return Undecodable(_meta_of(raw), path, problem, raw.copy())


def encode_body(body: Body | Sequence[Mapping[str, object]], kind: type[ApiObject] | None = None) -> bytes:
    """Encode a request body; apiVersion and kind are added from `kind` if the object lacks them."""
    if kind is None or not isinstance(body, Mapping | Struct):
        return msgspec.json.encode(body)
    fields: Json = dict(body) if isinstance(body, Mapping) else msgspec.to_builtins(body)
    fields.setdefault("apiVersion", kind.resource.api_version)
    fields.setdefault("kind", kind.resource.kind)
    return msgspec.json.encode(fields)


UNDECODABLE = "Undecodable"
"""The reason of an error about a response that cannot be decoded. The request itself was successful."""
UNDECODABLE_ERRORS = (msgspec.ValidationError, RecursionError)
INVALID_JSON = (msgspec.DecodeError, UnicodeDecodeError)


def _invalid_json(error: Exception) -> Unavailable:
    return Unavailable(0, "InvalidJson", f"the response is not JSON, or incomplete: {error}")


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


def _decode_truncated(decoder: "msgspec.json.Decoder[R]", text: bytes) -> R:
    """Decode JSON; what is nested too deeply is cut off first."""
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

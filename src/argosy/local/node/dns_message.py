"""Encodes and decodes the DNS messages that the DNS server needs (RFC 1035, SRV of RFC 2782).

A query has one question. Every record of a reply is about the queried name, which is returned exactly as it
was sent, because some clients check its letter case. A general DNS library takes longer to import than the
rest of the agent.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Final, NamedTuple

_INTERNET: Final = 1
_TTL_SECONDS: Final = 5
_HEADER = struct.Struct(">HHHHHH")
_QUESTION_NAME: Final = b"\xc0\x0c"
"""A pointer to the name of the question, which stands right after the header."""

_RESPONSE, _OPCODE, _AUTHORITATIVE, _TRUNCATED, _RECURSION_DESIRED, _RECURSION_AVAILABLE = (
    0x8000,
    0x7800,
    0x0400,
    0x0200,
    0x0100,
    0x0080,
)


class Type(IntEnum):
    A = 1
    CNAME = 5
    PTR = 12
    SRV = 33
    ANY = 255


class Code(IntEnum):
    NOERROR = 0
    SERVFAIL = 2
    NXDOMAIN = 3


class MessageError(ValueError):
    """The message is not a supported query."""


class Query(NamedTuple):
    id: int
    name: str
    """In lower case, without the last dot."""
    type: int
    question: bytes
    recursion: bool


class Record(NamedTuple):
    type: Type
    data: bytes


def parse(message: bytes) -> Query:
    try:
        number, flags, questions, *_ = _HEADER.unpack_from(message)
        if flags & (_RESPONSE | _OPCODE) or questions != 1:
            raise MessageError("not a plain query with one question")
        labels, position = [], _HEADER.size
        while size := message[position]:
            if size > 63:
                raise MessageError("a question has no pointers")
            labels.append(message[position + 1 : position + 1 + size].decode("latin-1"))
            position += 1 + size
        end = position + 5
        kind, _ = struct.unpack_from(">HH", message, position + 1)
    except (struct.error, IndexError) as error:
        raise MessageError("cut short") from error
    return Query(
        number,
        ".".join(labels).lower(),
        kind,
        message[_HEADER.size : end],
        bool(flags & _RECURSION_DESIRED),
    )


def build_reply(
    query: Query, code: Code, records: Sequence[Record], *, authoritative: bool, truncated: bool = False
) -> bytes:
    flags = _RESPONSE | _RECURSION_AVAILABLE | code
    flags |= _AUTHORITATIVE if authoritative else 0
    flags |= _TRUNCATED if truncated else 0
    flags |= _RECURSION_DESIRED if query.recursion else 0
    parts = [_HEADER.pack(query.id, flags, 1, len(records), 0, 0), query.question]
    for record in records:
        head = struct.pack(">HHIH", record.type, _INTERNET, _TTL_SECONDS, len(record.data))
        parts += [_QUESTION_NAME, head, record.data]
    return b"".join(parts)


def a_record(text: str) -> Record:
    return Record(Type.A, IPv4Address(text).packed)


def cname_record(name: str) -> Record:
    return Record(Type.CNAME, _name(name))


def ptr_record(name: str) -> Record:
    return Record(Type.PTR, _name(name))


def srv_record(port: int, target: str) -> Record:
    """Return the SRV data of a target; all have priority 0 and weight 100."""
    return Record(Type.SRV, struct.pack(">HHH", 0, 100, port) + _name(target))


def _name(text: str) -> bytes:
    labels = [label.encode() for label in text.rstrip(".").split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"

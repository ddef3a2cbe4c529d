"""Manifests: the digest, and what is refused of one that comes from elsewhere."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.checkpoint.manifest import InvalidManifestError, canonical, parse_manifest
from argosy_sdk import manifest as sdk_manifest

SHA = hashlib.sha256(b"x").hexdigest()
VALID: Mapping[str, object] = {
    "version": 1,
    "job": "uid",
    "attempt": 1,
    "step": 1200,
    "world": 4,
    "epoch": 8,
    "created": "2026-01-31T12:00:00.125Z",
    "level": "App",
    "parent": "",
    "seconds": 1.2,
    "parts": [{"path": "rank-0.pt", "rank": 0, "size": 1, "sha256": SHA}],
}


def encoded(**changes: object) -> bytes:
    return json.dumps({**VALID, **changes}).encode()


def part(**changes: object) -> list[dict[str, object]]:
    return [{"path": "rank-0.pt", "rank": 0, "size": 1, "sha256": SHA, **changes}]


def test_the_digest_is_that_of_the_canonical_form() -> None:
    manifest = parse_manifest(json.dumps(VALID, indent=2).encode())
    text = json.dumps(VALID, sort_keys=True, separators=(",", ":"))
    assert canonical(manifest) == text.encode()
    assert manifest.digest == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert manifest.name == f"step-1200-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def test_the_sdk_computes_the_same_digest(tmp_path: Path) -> None:
    raw = encoded(seconds=1e-7, parent=f"sha256:{SHA}")
    (tmp_path / "manifest.json").write_bytes(raw)
    assert sdk_manifest.digest_of(sdk_manifest.read(tmp_path)) == parse_manifest(raw).digest


def test_a_manifest_needs_only_step_world_and_parts() -> None:
    raw = json.dumps({"step": 3, "world": 1, "parts": part()}).encode()
    assert parse_manifest(raw).step == 3


REFUSED = {
    "no JSON": (b"<html>", "malformed"),
    "other JSON": (b"[]", "Expected `object`"),
    "deep JSON": (b"[" * 100_000, "Expected `object`"),
    "a later version": (encoded(version=2), "version: unsupported value 2; must be 1"),
    "a negative step": (encoded(step=-1), "step: invalid value -1; must be from 0"),
    "a step beyond JSON's integers": (encoded(step=2**63), "step"),
    "no ranks at all": (encoded(world=0), "world: invalid value 0"),
    "no files": (encoded(parts=[]), "parts: has 0 entries"),
    "a rank beyond the world": (
        encoded(parts=part(rank=4)),
        r"parts\[0\].rank: invalid value 4; must be from 0 to 3",
    ),
    "an absolute path": (encoded(parts=part(path="/etc/passwd")), "must be relative and"),
    "a path that leaves the folder": (
        encoded(parts=part(path="a/../../b")),
        "must be relative and",
    ),
    "an empty path": (encoded(parts=part(path="")), "must be relative and"),
    "a path with a NUL": (encoded(parts=part(path="a\0b")), "printable"),
    "a path with a line break": (encoded(parts=part(path="a\nb")), "printable"),
    "a path with a backslash": (encoded(parts=part(path="..\\b")), "printable"),
    "a path with a lone surrogate": (encoded(parts=part(path="\ud800")), "malformed"),
    "a path that is too long": (encoded(parts=part(path="a/" * 600 + "b")), "shorter than 1024"),
    "the manifest itself as a part": (encoded(parts=part(path="manifest.json")), "is reserved"),
    "a file twice": (encoded(parts=part() * 2), "is there twice"),
    "a file that is also a folder": (
        encoded(parts=part(path="a") + part(path="a/b")),
        "'a' is a file and a folder",
    ),
    "a negative size": (encoded(parts=part(size=-1)), r"parts\[0\].size"),
    "a digest in capitals": (encoded(parts=part(sha256=SHA.upper())), r"parts\[0\].sha256"),
    "a parent that is no digest": (encoded(parent="step-3"), "parent"),
    "a time without a zone": (encoded(created="2026-01-31T12:00:00"), "created"),
    "ranks beyond the world": (encoded(ranks=[4]), "ranks: must be from 0 to 3"),
}


@pytest.mark.parametrize(("raw", "problem"), REFUSED.values(), ids=REFUSED)
def test_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(InvalidManifestError, match=problem):
        parse_manifest(raw)


_KEYS = st.sampled_from([*VALID, "path", "rank", "size", "sha256"])
_JSON = st.recursive(
    st.none() | st.integers(-2, 2**64) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=8),
)


@given(st.binary() | _JSON.map(json.dumps).map(str.encode))
def test_garbage_never_raises_anything_else(raw: bytes) -> None:
    try:
        parse_manifest(raw)
    except InvalidManifestError:
        return

"""Replaces the parts of API responses that differ between any two servers.

uids and resource versions become numbers in the order of their first appearance, so that it still shows
whether two are equal. Times, allocated addresses, generated name suffixes and tokens become placeholders.
"""

import json
import re

_UUID = re.compile(r"\b(?!0{8}-)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_CLUSTER_IP = re.compile(r"10\.96\.\d+\.\d+")
_NODE_PORT = re.compile(r"(?<=:)3\d{4}(?=/(?:TCP|UDP|SCTP)\b)")
"""As a Table shows them, after the port of the Service."""
_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
_WEB_TOKEN = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")
_VERSIONS_TOO_OLD = re.compile(r"too old resource version: \d+ \(\d+\)")
_VERSION_IN_TEXT = re.compile(
    r"(ResourceVersion in \w+(?: \w+)?:? ?\(?|resource version: |resourceVersion\W+)\d+"
)
_LONGEST_PREFIX = 58
_WARNED_FIELD = re.compile(r'(?:unknown|duplicate) field \\"[^"]*')
_ADVICE = re.compile(
    "surprising behavior|hides previous definition|domain-qualified finalizer|negative values are invalid"
    "|is ignored (?:for headless services|when spec.type)|spec.externalIPs is deprecated"
)
"""Warnings about valid objects, which the local control plane does not send."""
_AGES = ("Age", "Last Seen", "First Seen")
_AGE = re.compile(r"\d+(?:s|ms|m|h|d)(?:\d+s)?")


class Normaliser:
    """Numbers uids and versions in the order of their appearance; one for each sequence of requests."""

    def __init__(self, url: str = "") -> None:
        self._url = url
        self._numbers: dict[str, dict[str, str]] = {}
        self._generated: dict[str, str] = {}
        self._prefixes: list[re.Pattern[str]] = []
        self._ages: list[bool] = []

    def normal(self, value: object) -> object:
        """A copy of a response in which such parts are replaced."""
        return self._value("", value)

    def _value(self, key: str, value: object) -> object:
        if isinstance(value, dict):
            return self._object(key, value)
        if isinstance(value, list):
            items = [self._value(key, item) for item in value]
            # Servers sort them by time in whole seconds, so the order of two writes within one is random.
            return sorted(items, key=_sort_key) if key == "managedFields" else items
        if key in ("nodePort", "healthCheckNodePort") and re.fullmatch(r"3\d{4}", str(value)):
            return self._number("node port", str(value))  # YAML is loaded as strings
        return self._text(key, value) if isinstance(value, str) else value

    def _object(self, key: str, value: dict[str, object]) -> object:
        self._note_generated_name(value)
        is_list = "items" in value or value.get("kind") == "Table" or value.get("type") == "BOOKMARK"
        normal: dict[str, object] = {}
        # The numbering must not depend on how a server orders fields or managers.
        for name, item in sorted(value.items(), key=lambda pair: (pair[0] == "managedFields", pair[0])):
            if is_list and name in ("metadata", "object") and isinstance(item, dict):
                item = _without_version(item)
            if is_list and name in ("items", "rows") and isinstance(item, list):
                item = _ordered(item)
            normal[str(self._text("", name))] = self._value(name, item)
        if value.get("kind") == "Table":
            self._settle_table(normal)
        return normal

    def _settle_table(self, table: dict[str, object]) -> None:
        """Replace ages, and remove the descriptions of columns, which the local server does not have.

        In a watch only the first table names the columns.
        """
        columns, rows = table.get("columnDefinitions"), table.get("rows")
        if isinstance(columns, list):
            self._ages = [column.get("name") in _AGES for column in columns]
            for column in columns:
                column.pop("description", None)
        for row in rows if isinstance(rows, list) else ():
            row["cells"] = [
                "<age>" if is_age and _AGE.fullmatch(str(cell)) else cell
                for is_age, cell in zip(self._ages, row["cells"], strict=False)
            ]

    def _note_generated_name(self, value: dict[str, object]) -> None:
        prefix, name = value.get("generateName"), value.get("name")
        if (
            isinstance(prefix, str)
            and isinstance(name, str)
            and len(name) > 5
            and prefix.startswith(name[:-5])
        ):
            self._generated[name] = f"{name[:-5]}<5>"

    def expect(self, prefix: str) -> None:
        """Replace generated names with this prefix, also in error messages, which show only the name."""
        self._prefixes.append(re.compile(f"({re.escape(prefix[:_LONGEST_PREFIX])})[a-z0-9]{{5}}\\b"))

    def _text(self, key: str, text: str) -> object:
        if key == "uid" and _UUID.fullmatch(text):
            return self._number("uid", text)
        if key == "resourceVersion" and text.isdigit() and text != "0":
            return self._number("version", text)
        if key == "continue" and text:
            return "<continue>"
        if key in ("clusterIP", "clusterIPs", "cells") and text.startswith("10."):
            return "<cluster ip>"
        if _CLUSTER_IP.fullmatch(text):
            return "<cluster ip>"
        if _TIME.fullmatch(text):
            return "<time>"
        if _MICRO_TIME.fullmatch(text):
            return "<micro time>"
        for name, ending in self._generated.items():
            text = text.replace(name, ending)
        for pattern in self._prefixes:
            text = pattern.sub(r"\1<5>", text)
        text = _MICRO_TIME.sub("<micro time>", _TIME.sub("<time>", text))
        text = _UUID.sub(lambda match: self._number("uid", match[0]), text)
        if key == "cells":
            text = _NODE_PORT.sub(lambda match: self._number("node port", match[0]), text)
        text = _CLUSTER_IP.sub("<cluster ip>", text)
        text = _TOKEN_VOLUME.sub("kube-api-access-<5>", text)
        text = _WEB_TOKEN.sub("<token>", text)
        text = _VERSIONS_TOO_OLD.sub("too old resource version: <version> (<version>)", text)
        text = _VERSION_IN_TEXT.sub(lambda match: f"{match[1]}<version>", text)
        return text.replace(self._url, "<server>") if self._url else text

    def _number(self, kind: str, value: str) -> str:
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(value, f"<{kind} {len(numbers) + 1}>")


def _without_version(item: dict[str, object]) -> dict[str, object]:
    """Hide the version of a list or bookmark, which is that of the whole store and changes with any write."""
    hidden = {name: "<any version>" if name == "resourceVersion" else part for name, part in item.items()}
    if isinstance(metadata := hidden.get("metadata"), dict):
        hidden["metadata"] = _without_version(metadata)
    if isinstance(rows := hidden.get("rows"), list):  # a bookmark as a Table
        hidden["rows"] = [{**row, "object": _without_version(row["object"])} for row in rows]
    return hidden


def _ordered(items: list[object]) -> list[object]:
    """Sort objects with generated names by version within the positions that they have in the list.

    Servers sort lists by name, and generated names are random.
    """
    places: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        if prefix := str(_meta(item).get("generateName", "")):
            places.setdefault(prefix, []).append(place)
    ordered = list(items)
    for alike in places.values():
        by_version = sorted((items[place] for place in alike), key=_version)
        for place, item in zip(alike, by_version, strict=True):
            ordered[place] = item
    return ordered


def _version(item: object) -> int:
    version = str(_meta(item).get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0


def _meta(item: object) -> dict[str, object]:
    """The metadata of an item of a list, or of the object in a row of a Table."""
    inner = item.get("object", item) if isinstance(item, dict) else None
    metadata = inner.get("metadata") if isinstance(inner, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def without_wording(value: object) -> object:
    """A copy of a response whose Status objects keep their code, reason and details (unless these are empty),
    and the fields and reasons of their causes, but not their messages."""
    if isinstance(value, list):
        return [without_wording(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not _is_failure(value):
        return {name: without_wording(item) for name, item in value.items()}
    status = {
        name: item for name, item in value.items() if name != "message" and (name, item) != ("details", {})
    }
    return with_sorted_causes(status, ("field", "reason"))


def with_sorted_causes(
    status: dict[str, object], kept: tuple[str, ...] = ("field", "reason", "message")
) -> dict[str, object]:
    """A Status with each cause once and in a fixed order: servers find errors in any order, and some twice.

    The message repeats the causes; of several causes, only its beginning is kept.
    """
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(details, dict) or not isinstance(causes, list):
        return status
    if len(causes) > 1 and "message" in status:
        status = {**status, "message": str(status["message"]).partition(": [")[0]}
    picked = [{name: cause[name] for name in kept if name in cause} for cause in causes]
    unique = {_sort_key(cause): cause for cause in picked}
    return {**status, "details": {**details, "causes": [unique[key] for key in sorted(unique)]}}


def _is_failure(value: dict[str, object]) -> bool:
    return value.get("kind") == "Status" and "code" in value


def without_advice(header: str) -> str:
    """The Warning header without advice about valid objects."""
    return " | ".join(warning for warning in header.split(" | ") if not _ADVICE.search(warning))


def warning_fields(header: str) -> list[str]:
    """The fields that warnings name, and a placeholder for each other warning."""
    return sorted(
        match[0] if (match := _WARNED_FIELD.search(warning)) else "<warning>"
        for warning in header.split(" | ")
    )


def _sort_key(value: object) -> str:
    """A text by which JSON values sort, whatever the order of their fields."""
    return json.dumps(value, sort_keys=True)

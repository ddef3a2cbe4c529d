"""Objects in S3, Google Cloud Storage or Azure Blob Storage, by `obstore`.

Credentials come from the environment under the names of the provider's own tools (`AWS_ACCESS_KEY_ID`,
`GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_KEY`, …), or from a mapping with the same names, such
as a Secret. Requests that fail for a while are tried again; the rest becomes a StoreError of one line.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from argosy.checkpoint.drivers.buckets import Entry
from argosy.checkpoint.store import CorruptCheckpointError, MissingObjectError, StoreError
from argosy.kinds.text import truncate

if TYPE_CHECKING:  # They exist for type checkers only.
    from obstore.store import ClientConfig, RetryConfig

Client = S3Store | GCSStore | AzureStore

_LIST_PAGE: Final = 1000
_MAX_MESSAGE_CHARS: Final = 300
_RETRY: "Final[RetryConfig]" = {"max_retries": 8, "retry_timeout": timedelta(seconds=60)}
_CONNECT_TIMEOUT: Final = timedelta(seconds=10)
_TIMEOUT: Final = timedelta(seconds=60)
_PROVIDERS: Final[Mapping[str, tuple[str, str, Callable[..., Client]]]] = {
    "s3": ("AWS_", "AWS_ENDPOINT_URL", S3Store),
    "gs": ("GOOGLE_", "GOOGLE_BASE_URL", GCSStore),
    "az": ("AZURE_", "AZURE_STORAGE_ENDPOINT", AzureStore),
}
"""For each scheme the beginning of variables, the variable of the endpoint, and the client."""
_DENIED = re.compile(r"status code: 40[13]\b")
_FULL = re.compile(r"QuotaExceeded|StorageFull|status code: 507\b|no space left", re.IGNORECASE)
"""What S3 servers answer whose disk is full, or whose quota is used up."""
_FACTS = re.compile(r"<(?:Code|Message)>([^<]*)</")
_URL_QUERY = re.compile(r"(https?://[^\s?\"]*)\?[^\s\"]*")


class CloudBucket:
    def __init__(self, client: Client, uri: str) -> None:
        self._client = client
        self._uri = uri

    @property
    def uri(self) -> str:
        return self._uri

    def put(self, key: str, content: bytes) -> None:
        with self._errors(key):
            self._client.put(key, content, use_multipart=False)

    def get(self, key: str, max_bytes: int) -> bytes:
        with self._errors(key):
            answer = self._client.get(key)
            size = answer.meta["size"]
            content = b"" if size > max_bytes else bytes(answer.bytes())
        if size > max_bytes:
            raise CorruptCheckpointError(f"{self._uri}/{key}: longer than {max_bytes} bytes")
        return content

    def list(self, prefix: str) -> Iterator[Entry]:
        with self._errors(prefix):
            for page in self._client.list(prefix, chunk_size=_LIST_PAGE):
                for found in page:
                    yield Entry(found["path"], found["size"], found["last_modified"])

    def folders(self) -> Sequence[str]:
        with self._errors(""):
            return sorted(self._client.list_with_delimiter()["common_prefixes"])

    def delete(self, keys: Collection[str]) -> None:
        if keys:
            with self._errors(next(iter(keys))):
                try:
                    self._client.delete([*keys])
                except FileNotFoundError:
                    self._delete_one_by_one(keys)

    def _delete_one_by_one(self, keys: Collection[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):
                self._client.delete(key)

    def remove_unfinished(self, before: datetime) -> None:
        """Objects are written in one request, so nothing is left of one that was not."""

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise MissingObjectError(f"{self._uri}/{key}: not found") from None
        except (BaseError, ValueError, OSError) as error:
            if _FULL.search(str(error)):
                problem = f"no space left; delete checkpoints or enlarge the bucket ({_line(error)})"
                raise StoreError(f"{self._uri}: {problem}") from None
            if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _DENIED.search(str(error)):
                problem = f"access denied; check the credentials ({_line(error)})"
                raise StoreError(f"{self._uri}: {problem}") from None
            raise StoreError(f"{self._uri}/{key}: {_line(error)}") from None


def open_bucket(
    scheme: str, bucket: str, prefix: str, uri: str, credentials: Mapping[str, str]
) -> CloudBucket:
    """Return a bucket of a cloud; raises StoreError if its settings cannot be used."""
    beginning, endpoint_name, make = _PROVIDERS[scheme]
    config = {name: value for name, value in credentials.items() if name.startswith(beginning)}
    endpoint = config.get(endpoint_name) or os.environ.get(endpoint_name, "")
    options: ClientConfig = {
        "connect_timeout": _CONNECT_TIMEOUT,
        "timeout": _TIMEOUT,
        "allow_http": urlsplit(endpoint).scheme == "http",
    }
    try:
        client = make(
            bucket, prefix=prefix or None, config=config, client_options=options, retry_config=_RETRY
        )
    except UnknownConfigurationKeyError as error:
        raise StoreError(f"{uri}: unknown setting in the credentials ({_line(error)})") from None
    except (BaseError, ValueError, OSError) as error:
        raise StoreError(f"{uri}: {_line(error)}") from None
    return CloudBucket(client, uri)


def _line(error: Exception) -> str:
    """Return what a user needs of a message, in one line: no HTML, and no parameters of URLs.

    The parameters may be a signature that grants access. Of an answer in XML the code and the message stay.
    """
    text = _URL_QUERY.sub(r"\1", str(error).partition("Debug source:")[0])
    head, _, markup = text.partition("<")
    facts = ": ".join(_FACTS.findall(markup)) or ("a page of HTML" if "html" in markup[:100].lower() else "")
    return truncate(" ".join(f"{head} {facts}".split()), _MAX_MESSAGE_CHARS)

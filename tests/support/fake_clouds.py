"""Fakes of Google Cloud Storage and Azure Blob Storage on loopback, as far as stores of checkpoints use them.

They speak the XML dialects of the two over HTTP and keep objects in memory.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "checkpoints"
_PAGE = 3


@dataclass
class FakeCloud:
    """The objects of one bucket, by name, and what was asked for."""

    scheme: str
    endpoint: str = ""
    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    authorizations: set[str] = field(default_factory=set)
    refuse: int = 0
    """A status with which all requests are refused, by a page of HTML."""

    @property
    def credentials(self) -> Mapping[str, str]:
        if self.scheme == "gs":
            return {"GOOGLE_BASE_URL": self.endpoint, "GOOGLE_BEARER_TOKEN": "token-4711"}
        return {
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_STORAGE_ACCOUNT_NAME": "account",
            "AZURE_STORAGE_ACCOUNT_KEY": "a2V5",
        }

    def page(self, prefix: str, after: str, delimiter: str = "") -> tuple[list[str], str]:
        """Return names of objects, few at a time, and where the next page begins.

        With a delimiter a name ends with the first one after the prefix: it is that of a folder.
        """
        found = {name for name in self.objects if name.startswith(prefix)}
        if delimiter:
            cut = (name.removeprefix(prefix).partition(delimiter)[:2] for name in found)
            found = {prefix + "".join(parts) for parts in cut}
        names = sorted(name for name in found if name > after)
        return names[:_PAGE], names[_PAGE - 1] if len(names) > _PAGE else ""


@contextmanager
def running_fake(scheme: str) -> Iterator[FakeCloud]:
    """Run a fake for the duration of the block."""
    cloud = FakeCloud(scheme)

    class Handler(_Handler):
        fake = cloud

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cloud.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeCloud

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self) -> tuple[bytes, str, dict[str, str]] | None:
        """Return body, name of the object and query; None if the request was answered already."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parsed = urlsplit(self.path)
        self.fake.authorizations.add(self.headers.get("Authorization", "").partition(" ")[0])
        if self.fake.refuse:
            self._answer(
                self.fake.refuse, b"<html><body>proxy login</body></html>", {"Content-Type": "text/html"}
            )
            return None
        bucket, _, name = unquote(parsed.path).lstrip("/").partition("/")
        if bucket != BUCKET:
            self._answer(404)
            return None
        query = {key: values[0] for key, values in parse_qs(parsed.query).items()}
        return body, name, query

    def do_PUT(self) -> None:
        if begun := self._begin():
            body, name, _ = begun
            self.fake.objects[name] = (body, datetime.now(UTC))
            self._answer(201 if self.fake.scheme == "az" else 200, headers={"ETag": '"1"'})

    def do_DELETE(self) -> None:
        if begun := self._begin():
            found = self.fake.objects.pop(begun[1], None)
            self._answer(404 if found is None else 202 if self.fake.scheme == "az" else 204)

    def do_POST(self) -> None:
        """Answer a batch of deletions, which only Azure has."""
        if begun := self._begin():
            answers = []
            for number, line in enumerate(re.findall(rb"DELETE (\S+) HTTP", begun[0])):
                name = unquote(urlsplit(line.decode()).path).lstrip("/").partition("/")[2]
                status = 404 if self.fake.objects.pop(name, None) is None else 202
                head = f"Content-Type: application/http\r\nContent-ID: {number}\r\n\r\nHTTP/1.1 {status} -"
                answers.append(f"--batch\r\n{head}\r\nx-ms-version: 2023-11-03\r\n\r\n")
            body = "".join([*answers, "--batch--\r\n"]).encode()
            self._answer(202, body, {"Content-Type": "multipart/mixed; boundary=batch"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if begun := self._begin():
            _, name, query = begun
            if not name:
                self._list(query)
            elif name in self.fake.objects:
                content, modified = self.fake.objects[name]
                headers = {"ETag": '"1"', "Last-Modified": format_datetime(modified, usegmt=True)}
                self._answer(200, content, headers)
            else:
                self._answer(404)

    def _list(self, query: Mapping[str, str]) -> None:
        azure = self.fake.scheme == "az"
        after = query.get("marker" if azure else "continuation-token", "")
        names, following = self.fake.page(query.get("prefix", ""), after, query.get("delimiter", ""))
        listed = "".join(map(self._azure_entry if azure else self._google_entry, names))
        if azure:
            content = f"<Blobs>{listed}</Blobs><NextMarker>{escape(following)}</NextMarker>"
            body = f"<EnumerationResults>{content}</EnumerationResults>"
        else:
            token = f"<NextContinuationToken>{escape(following)}</NextContinuationToken>" if following else ""
            body = f"<ListBucketResult>{token}{listed}</ListBucketResult>"
        self._answer(
            200, f'<?xml version="1.0" encoding="utf-8"?>{body}'.encode(), {"Content-Type": "application/xml"}
        )

    def _google_entry(self, name: str) -> str:
        if name not in self.fake.objects:
            return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
        content, modified = self.fake.objects[name]
        facts = (
            f"<Size>{len(content)}</Size><LastModified>{modified.isoformat()}</LastModified><ETag>1</ETag>"
        )
        return f"<Contents><Key>{escape(name)}</Key>{facts}</Contents>"

    def _azure_entry(self, name: str) -> str:
        if name not in self.fake.objects:
            return f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
        content, modified = self.fake.objects[name]
        facts = (
            f"<Last-Modified>{format_datetime(modified, usegmt=True)}</Last-Modified>"
            f"<Content-Length>{len(content)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><Etag>1</Etag>"
        )
        return f"<Blob><Name>{escape(name)}</Name><Properties>{facts}</Properties></Blob>"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

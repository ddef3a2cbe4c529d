"""The server responds to invalid requests with a Status, and continues."""

import json
import socket
import ssl
import urllib.error
import urllib.request

import pytest

from tests.support.servers import Server

PATH = "/api/v1/namespaces/default/configmaps"
BODIES: dict[str, tuple[bytes, str, int]] = {
    "empty body: 400": (b"", "application/json", 400),
    "incomplete JSON object: 400": (b'{"metadata": {', "application/json", 400),
    "JSON list: 400": (b"[]", "application/json", 400),
    "JSON number: 400": (b"7", "application/json", 400),
    "text that is not JSON: 400": (b"hello", "application/json", 400),
    "JSON nested too deeply: 400": (b'{"data":' * 100_000, "application/json", 400),
    "invalid UTF-8: 400": (b'{"metadata":{"name":"\xff\xfe"}}', "application/json", 400),
    "unknown content type: 415": (b"{}", "text/plain", 415),
    "invalid YAML: 400": (b"a: [", "application/yaml", 400),
    "YAML list: 400": (b"- a\n- b\n", "application/yaml", 400),
    "protobuf without its prefix: 400": (b"abc", "application/vnd.kubernetes.protobuf", 400),
    "invalid protobuf: 400": (b"k8s\0\xff\xff\xff\xff\xff\xff", "application/vnd.kubernetes.protobuf", 400),
    "name of 254 characters: 422": (
        json.dumps({"metadata": {"name": "x" * 254}}).encode(),
        "application/json",
        422,
    ),
    "number as labels: 400": (b'{"metadata":{"name":"a","labels":7}}', "application/json", 400),
    "list as metadata: 400": (b'{"metadata":[]}', "application/json", 400),
    "body above three megabytes: 413": (
        b'{"metadata":{"name":"big"},"data":{"a":"' + b"x" * (4 << 20) + b'"}}',
        "application/json",
        413,
    ),
}


@pytest.mark.parametrize("case", BODIES.values(), ids=BODIES)
def test_response_to_an_invalid_body_is_a_status(
    local_apiserver: Server, case: tuple[bytes, str, int]
) -> None:
    body, content_type, code = case
    answer = send(local_apiserver, "POST", PATH, body, content_type)
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", code)


@pytest.mark.parametrize(
    "path",
    [
        PATH + "?limit=x",
        PATH + "?continue=nonsense",
        PATH + "?labelSelector=a%3D%3D%3D",
        PATH + "?resourceVersion=-1",
        PATH + "/" + "x" * 5000,
        "/apis/apps/v1/namespaces/default/deployments/none/scale",
    ],
)
def test_response_to_invalid_parameters_is_a_status(local_apiserver: Server, path: str) -> None:
    answer = send(local_apiserver, "GET", path)
    assert (answer["kind"], answer["status"]) == ("Status", "Failure")


@pytest.mark.parametrize("method", ["FOO", "TRACE", "PROPFIND"])
def test_response_to_an_unknown_method_is_a_status(local_apiserver: Server, method: str) -> None:
    assert send(local_apiserver, method, PATH)["reason"] == "MethodNotAllowed"


@pytest.mark.parametrize(
    "raw", [b"\x16\x03\x01garbage\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096], ids=repr
)
def test_invalid_bytes_on_a_connection_do_not_affect_other_clients(
    local_apiserver: Server, raw: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", local_apiserver.port), timeout=5) as noise:
        noise.sendall(raw)
    assert send(local_apiserver, "GET", "/api/v1/namespaces/default")["kind"] == "Namespace"


def send(
    server: Server, method: str, path: str, body: bytes | None = None, content_type: str = ""
) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": content_type}
    request = urllib.request.Request(server.url + path, data=body, headers=headers, method=method)
    context = ssl.create_default_context(cafile=str(server.ca_file))
    try:
        with urllib.request.urlopen(request, context=context, timeout=20) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        content = error.read()
    decoded: dict[str, object] = json.loads(content)
    return decoded

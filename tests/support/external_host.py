"""An HTTP server outside of the cluster: in its own network namespace, one link away from the host.

It has a route to the host only, so that it can only answer requests from the host's own address: a pod that
gets an answer was masqueraded. It stands for the internet, which tests must not use.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from argosy.local.node.netlink import Netlink

HOST, WORLD = "198.51.100.1", "198.51.100.10"
"""Addresses of the host and of the server on the link, from a range reserved for documentation."""

_SERVER = f"""
import http.server, sys
from argosy.local.node import kernel
from argosy.local.node.netlink import Netlink

kernel.unshare(kernel.NEW_NET)
print("made", flush=True)
sys.stdin.readline()
with Netlink() as netlink:
    for name in ("lo", "world"):
        netlink.set_up(netlink.index(name))
    netlink.add_address(netlink.index("world"), "{WORLD}", 24)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"hello {{self.client_address[0]}}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass

server = http.server.ThreadingHTTPServer(("{WORLD}", 80), Handler)
print("serving", flush=True)
server.serve_forever()
"""


@contextmanager
def outside() -> Iterator[str]:
    """Run the server; yields its URL. It answers with `hello` and the address of the client."""
    link = f"ayout{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "made\n"
        _join(link, process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "serving\n"
        yield f"http://{WORLD}/"
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _join(link: str, pid: int) -> None:
    """Connect the two networks; the link is deleted with the network namespace of the server."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with Netlink() as host:
            host.add_veth(link, master=0, peer="world", peer_namespace=namespace, mtu=1500)
            index = host.index(link)
            assert index is not None
            host.add_address(index, HOST, 24)
            host.set_up(index)
    finally:
        os.close(namespace)

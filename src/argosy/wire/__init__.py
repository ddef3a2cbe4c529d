"""HTTP/1.1 and WebSockets on asyncio, client and server. The lowest layer: it knows nothing of Kubernetes."""

"""HTTP/1.1 and WebSockets on asyncio: the lowest layer, which knows nothing of Kubernetes or of jobs."""

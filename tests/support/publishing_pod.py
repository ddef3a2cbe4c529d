"""A pod with a folder of its own for checkpoints, and the sidecar that publishes them, without a program."""

from collections.abc import Mapping
from pathlib import Path

from argosy.checkpoint.drivers.uris import open_store
from argosy.checkpoint.sidecar import PublishingStore
from argosy.checkpoint.store import Store
from argosy.helper.endpoint import Endpoint
from argosy.helper.orders import CheckpointWatcher, Settings
from argosy_sdk import manifest


class Operator(Endpoint):
    """Accepts every acknowledgement."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, Mapping[str, object]]] = []

    def post_json(self, path: str, body: Mapping[str, object], timeout: float) -> str:
        self.posts.append((path, body))
        return ""


class Pod:
    """A pod with a folder of its own and a store that it publishes to."""

    def __init__(self, home: Path, number: int = 0, store: Store | None = None) -> None:
        self.folder = home / f"pod-{number}" / "checkpoints"
        self.link = home / f"pod-{number}" / "run/resume/checkpoint"
        self.folder.mkdir(parents=True)
        self.operator = Operator()
        self.store = store or open_store(f"file://{home}/store")
        settings = Settings(
            self.folder, self.link, 2, "pod", "uid", "worker", number, False, False, resume=self.link
        )
        self.watcher = CheckpointWatcher(self.operator, settings, PublishingStore(self.store, 2))

    def save(self, step: int, rank: int = 0, world: int = 1, content: bytes = b"") -> Path:
        path = self.folder / f"step-{step}"
        path.mkdir()
        (path / f"rank-{rank}.txt").write_bytes(content or f"{step} {rank}".encode())
        described: dict[str, object] = {
            "version": 1,
            "job": "uid",
            "attempt": 1,
            "step": step,
            "world": world,
            "epoch": 8,
            "created": f"2030-01-01T00:{step:02}:00Z",
            "level": "App",
            "parent": "",
            "seconds": 1.0,
            "parts": manifest.make_parts(path, [f"rank-{rank}.txt"], rank),
        }
        if world > 1:
            described["ranks"] = [rank]
        manifest.write_json(path / "manifest.json", described)
        return path

    def acknowledged(self) -> list[object]:
        return [body["step"] for path, body in self.operator.posts if path == "checkpoints/ack"]

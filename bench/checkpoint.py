"""A checkpoint of eight ranks to a real S3 server: the speed beside the bare client, and what is sent again.

The bound is the same client that sends the same bytes of the same files in pieces of the same length, as many
at a time, without digests, compression, index or manifest.
"""

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from argosy.checkpoint.chunks import CHUNK_BYTES, spans
from argosy.checkpoint.drivers.buckets import Bucket
from argosy.checkpoint.drivers.folder_manifest import read_manifest
from argosy.checkpoint.drivers.transfers import WORKERS
from argosy.checkpoint.drivers.uris import open_bucket, open_store
from argosy.checkpoint.manifest import Manifest
from argosy_sdk.session import Session
from bench.figures import Figure
from tests.support.s3_server import BUCKET, RunningS3, missing_s3_server, running_s3

RANKS = 8
RANK_BYTES = 128 * 1024 * 1024
CHANGED_SHARE = 0.05
ROUNDS = 3
MIN_SPEED = 0.6
MAX_SENT_AGAIN = 0.1


def measure(ranks: int = RANKS, rank_bytes: int = RANK_BYTES, rounds: int = ROUNDS) -> Iterator[Figure]:
    if problem := missing_s3_server():
        print(f"checkpoint: skipped: {problem}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        files = {f"rank-{rank}.pt": random.Random(rank).randbytes(rank_bytes) for rank in range(ranks)}
        manifest = _save(folder / "work", 1, files)
        (folder / "s3").mkdir()
        with running_s3(folder / "s3") as s3:
            yield from _throughput(folder, manifest, s3, rounds)
            yield from _sent_again(folder, files, s3)


def _throughput(folder: Path, manifest: Manifest, s3: RunningS3, rounds: int) -> Iterator[Figure]:
    """Measure publishing and restoring, by turns with the bare client."""
    source = folder / "work" / f"step-{manifest.step}"
    times: dict[str, list[float]] = {"publish": [], "put": [], "restore": [], "get": []}
    for number in range(rounds):
        for name, seconds in _round(s3, source, manifest, folder / "restored", number):
            times[name].append(seconds)
    mebibytes = manifest.size / 2**20
    for name, bare in (("publish", "put"), ("restore", "get")):
        speed, bound = mebibytes / median(times[name]), mebibytes / median(times[bare])
        yield Figure(
            f"checkpoint_{name}_mb_s", speed, "MB/s", bound, "the bare client", None, better="higher"
        )
        ratio = median(alone / ours for ours, alone in zip(times[name], times[bare], strict=True))
        target_ratio = MIN_SPEED if name == "publish" else None
        yield Figure(
            f"checkpoint_{name}_ratio", ratio, "", 1.0, "the bare client", target_ratio, better="higher"
        )


def _round(
    s3: RunningS3, source: Path, manifest: Manifest, target: Path, number: int
) -> Iterator[tuple[str, float]]:
    """Yield the seconds of each step; store and bare client take turns in being first."""
    bucket = open_bucket(f"s3://{BUCKET}/bare", s3.credentials)
    store = open_store(f"s3://{BUCKET}/store", s3.credentials)
    steps: list[tuple[str, Callable[[], object]]] = [
        ("publish", lambda: store.publish(source, manifest)),
        ("put", lambda: _put(bucket, source, manifest)),
    ]
    for name, step in steps if number % 2 else reversed(steps):
        yield name, _seconds(step)
    yield "restore", _seconds(lambda: store.restore(manifest, target))
    shutil.rmtree(target)
    yield "get", _seconds(lambda: _get(bucket, target, manifest))
    shutil.rmtree(target)
    for prefix in ("bare", "store"):
        shutil.rmtree(s3.objects / prefix)


def _sent_again(folder: Path, files: dict[str, bytes], s3: RunningS3) -> Iterator[Figure]:
    """Change a part of every rank's file, anywhere in it, and measure what a second checkpoint sends."""
    store = open_store(f"s3://{BUCKET}/twice", s3.credentials)
    work = folder / "work"
    store.publish(work / "step-1", read_manifest(work / "step-1"))
    drawn = random.Random(7)
    for name, content in files.items():
        length = int(len(content) * CHANGED_SHARE)
        start = drawn.randrange(len(content) - length)
        files[name] = content[:start] + drawn.randbytes(length) + content[start + length :]
    saved = store.publish(work / "step-2", _save(work, 2, files))
    share = saved.uploaded / saved.manifest.size
    yield Figure("checkpoint_sent_again_share", share, "", CHANGED_SHARE, "changed bytes", MAX_SENT_AGAIN)


def _save(directory: Path, step: int, files: dict[str, bytes]) -> Manifest:
    with Session({"ARGOSY_CHECKPOINT_DIR": str(directory)}).saving(step) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
    return read_manifest(directory / f"step-{step}")


def _put(bucket: Bucket, source: Path, manifest: Manifest) -> None:
    def put(path: str, number: int, offset: int) -> None:
        with (source / path).open("rb") as file:
            file.seek(offset)
            bucket.put(f"{path}/{number}", file.read(CHUNK_BYTES))

    _in_parallel(manifest, put)


def _get(bucket: Bucket, target: Path, manifest: Manifest) -> None:
    target.mkdir()
    for part in manifest.parts:
        (target / part.path).touch()

    def get(path: str, number: int, offset: int) -> None:
        content = bucket.get(f"{path}/{number}", CHUNK_BYTES)
        with (target / path).open("r+b") as file:
            file.seek(offset)
            file.write(content)

    _in_parallel(manifest, get)


def _in_parallel(manifest: Manifest, transfer: Callable[[str, int, int], None]) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        transfers = [
            pool.submit(transfer, part.path, number, span.offset)
            for part in manifest.parts
            for number, span in enumerate(spans(part.size))
        ]
        for ended in transfers:
            ended.result()


def _seconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started

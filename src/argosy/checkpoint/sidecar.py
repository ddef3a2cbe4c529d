"""Runs beside programs whose checkpoints go to an object store: `python -m argosy.checkpoint.sidecar`.

`orders` is the sidecar of `argosy.helper.orders`, which here publishes each checkpoint before it acknowledges
it. `resume` is the init container that restores the newest checkpoint; in a job of independent copies that of
any copy. Credentials are read from the folder `ARGOSY_STORE_CREDENTIALS`, a mounted Secret that no other
container has.
"""

import argparse
import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from argosy.checkpoint.drivers.credentials import read_credentials
from argosy.checkpoint.drivers.uris import open_copies, open_store
from argosy.checkpoint.manifest import MANIFEST_NAME, InvalidManifestError, parse_manifest
from argosy.checkpoint.store import Latest, Store, StoreError
from argosy.helper.checkpoint_folder import Checkpoint, copy_sdk
from argosy.helper.endpoint import Endpoint
from argosy.helper.orders import Settings, keep_current

RESTORE_SECONDS = 600.0
"""How long a store that cannot be used is tried again before the pod fails."""
MAX_RETRY_SECONDS = 15.0


class Restorer(Protocol):
    """A store, or those of all copies of a program."""

    def restore_latest(self, target: Path) -> Latest:
        """Restore the newest checkpoint that can be restored, and tell which were skipped."""
        ...


class PublishingStore:
    """Publishes the checkpoints of this pod to the store of its job."""

    def __init__(self, store: Store, keep_last: int) -> None:
        self._store = store
        self._keep_last = keep_last

    def publish(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the checkpoint as the store has it; None while files of other pods are missing.

        Raises OSError if it could not be stored.
        """
        try:
            local = parse_manifest((checkpoint.folder / MANIFEST_NAME).read_bytes())
            saved = self._store.publish(checkpoint.folder, local)
        except (StoreError, InvalidManifestError) as error:
            raise OSError(str(error)) from error
        if not saved.complete:
            return None
        print(f"argosy: step {checkpoint.step} stored ({saved.uploaded} bytes sent)", flush=True)
        seconds = saved.manifest.seconds + saved.seconds
        return checkpoint._replace(
            digest=saved.digest, size=saved.manifest.size, world=saved.manifest.world, seconds=seconds
        )

    def prune(self) -> None:
        """Delete old checkpoints in the store; what cannot be deleted now is deleted after the next one."""
        try:
            self._store.prune(self._keep_last)
        except StoreError as error:
            print(f"argosy: old checkpoints not deleted: {error}", file=sys.stderr, flush=True)


def restore(
    store: Restorer, target: Path, pause: Callable[[float], None] = time.sleep, *, optional: bool = False
) -> Latest:
    """Restore the newest checkpoint, and print which were skipped; try again while the store fails.

    If it is optional, since none was ever acknowledged, a store that fails is like an empty one.
    """
    latest = _restore_patiently(store, target, pause, optional=optional)
    for skipped in latest.skipped:
        print(f"argosy: skipped {skipped.name}: {skipped.reason}", file=sys.stderr, flush=True)
    found = f"resuming from step {latest.manifest.step}" if latest.manifest else "no checkpoint yet"
    print(f"argosy: {found}", flush=True)
    return latest


def _restore_patiently(
    store: Restorer, target: Path, pause: Callable[[float], None], *, optional: bool
) -> Latest:
    waited = 0.0
    for failures in itertools.count():
        try:
            return store.restore_latest(target)
        except (StoreError, OSError) as error:
            if optional:
                print(f"argosy: {error}", file=sys.stderr, flush=True)
                return Latest(None)
            if waited >= RESTORE_SECONDS:
                raise
            wait = min(2.0**failures, MAX_RETRY_SECONDS)
            print(f"argosy: {error}; trying again in {wait:g} s", file=sys.stderr, flush=True)
            waited += wait
            pause(wait)
    raise AssertionError("the loop above does not end")


def restore_beside(store: Restorer, link: Path, *, optional: bool = False) -> None:
    """Restore the newest checkpoint to a folder `step-<n>`, to which the link leads then.

    It is in a folder with the whole name of the checkpoint. So a path that one pod passes on to others exists
    in these only if they have restored the same one, and programs find the step where they expect it.
    """
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    for folder in link.parent.glob("step-*"):
        shutil.rmtree(folder)
    restored = link.with_name("restored")
    shutil.rmtree(restored, ignore_errors=True)
    latest = restore(store, restored, optional=optional)
    if latest.manifest is not None:
        path = Path(latest.manifest.name, f"step-{latest.manifest.step}")
        link.with_name(latest.manifest.name).mkdir()
        restored.rename(link.parent / path)
        link.symlink_to(path)


def main(arguments: Sequence[str]) -> int:
    """Run the init container, or the sidecar, which ends with the process; return the exit code."""
    parser = argparse.ArgumentParser(prog="argosy.checkpoint.sidecar", description=__doc__)
    parser.add_argument("command", choices=["orders", "resume"])
    parser.add_argument("--link", type=Path, help="with resume: the link to the checkpoint that is restored")
    parser.add_argument("--copies", help="with resume: URI of the folder with those of all copies")
    parser.add_argument("--optional", action="store_true", help="with resume: go on if the store fails")
    parser.add_argument("--sdk", type=Path, help="with resume: the folder for argosy_sdk")
    chosen = parser.parse_args(arguments)
    folder = os.environ.get("ARGOSY_STORE_CREDENTIALS")
    try:
        credentials = read_credentials(Path(folder)) if folder else {}
        uri = os.environ["ARGOSY_CHECKPOINT_URI"]
        store = open_store(uri, credentials)
        if chosen.command == "resume":
            copy_sdk(chosen.sdk)
            copies = open_copies(chosen.copies, _last_name(uri), credentials) if chosen.copies else None
            restore_beside(copies or store, chosen.link, optional=chosen.optional)
        else:
            settings = Settings.from_environment()
            keep_current(Endpoint.from_environment(), settings, PublishingStore(store, settings.keep_last))
    except (StoreError, OSError) as error:
        print(f"argosy: {error}", file=sys.stderr)
        return 1
    return 0


def _last_name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

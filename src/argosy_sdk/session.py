"""The checkpoints of one training process: what was resumed, when one was saved, which order is open."""

import errno
import operator
import os
import time
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable, Iterator, List, Mapping, Optional, Tuple

from argosy_sdk import environment, folders, manifest, surplus
from argosy_sdk.errors import CheckpointError
from argosy_sdk.orders import Order, Watcher, read_order
from argosy_sdk.progress import StepFile
from argosy_sdk.save import Save

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Session:
    """The checkpoints of one process; the functions of the package use a single one."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._environ = environ
        self._clock = clock
        self._last = clock()
        self._step: Optional[int] = None
        self._parent = ""
        self._epoch = 0
        self._step_file = StepFile(environment.step_file(environ), clock)
        self.skipped: List[str] = []
        """Why `latest` did not take newer checkpoints."""

    def latest(self) -> Optional[Path]:
        """Return the newest checkpoint that is complete and undamaged, and remove unfinished ones."""
        place = environment.place(self._environ, None, None)
        directory = environment.directory(self._environ)
        if directory is not None and place.leader:
            folders.clean(directory)
        self.skipped = []
        for _, path, restored in self._candidates(directory):
            try:
                content = manifest.read(path)
                if content.get("ranks") and not restored:
                    raise CheckpointError(f"{path}: has files of ranks {content['ranks']} only")
                # What was restored was verified on the way.
                ranks = () if restored else None if place.leader else (place.rank,)
                manifest.verify(path, content, ranks)
            except CheckpointError as error:
                self.skipped.append(str(error))
                continue
            self._last = self._clock()
            self._step = content["step"]
            self._parent = manifest.digest_of(content)
            self._epoch = max(self._epoch, _natural(content.get("epoch")))
            self._step_file.write(content["step"])
            return path
        return None

    def due(self, step: int) -> bool:
        """Return True if the interval has passed or an order is open."""
        self._step_file.report(step)
        if environment.directory(self._environ) is None:
            return False
        if self.open_order() is not None:
            return True
        seconds = environment.interval(self._environ)
        return seconds is not None and step != self._step and self._clock() - self._last >= seconds

    def open_order(self) -> Optional[Order]:
        """Return the order that no checkpoint has answered yet."""
        order = read_order(environment.orders_path(self._environ))
        return order if order is not None and order.epoch > self._epoch else None

    def should_stop(self) -> bool:
        """Return True if the order that was answered last ends this pod."""
        order = read_order(environment.orders_path(self._environ))
        return order is not None and order.stop and order.epoch == self._epoch

    @contextmanager
    def saving(
        self, step: int, rank: Optional[int] = None, world: Optional[int] = None, timeout: float = 600.0
    ) -> Iterator[Path]:
        """Save a checkpoint of what the block writes into the folder."""
        directory = environment.directory(self._environ)
        if directory is None:
            raise CheckpointError("ARGOSY_CHECKPOINT_DIR is not set: it must name the folder for checkpoints")
        step = operator.index(step)
        if step < 0:
            raise CheckpointError(f"step: invalid value {step}: must be a natural number")
        self._step_file.write(step)
        place = environment.place(self._environ, rank, world)
        started = self._clock()
        order = self.open_order()
        save = Save(directory, step, place, timeout)
        try:
            save.begin()
            yield save.folder
            described = self._describe(step, place.world, order, self._clock() - started)
            saved = save.commit(described)
        except BaseException as error:
            save.abandon(error)
            if isinstance(error, OSError) and error.errno in _FULL:
                raise CheckpointError(
                    f"{directory}: no space left for step {step}; earlier checkpoints are complete"
                ) from error
            raise
        self._last = self._clock()
        self._step = step
        self._epoch = order.epoch if order is not None else self._epoch
        if saved is not None:
            self._parent = manifest.digest_of(saved)
            orders = environment.orders_path(self._environ)
            surplus.delete(directory, orders.with_name(surplus.FILE_NAME))

    def on_notice(self, callback: Callable[[Order], None]) -> None:
        """Call a function for each order that is newer than those answered."""
        Watcher(environment.orders_path(self._environ), callback, self._epoch).start()

    def _candidates(self, directory: Optional[Path]) -> List[Tuple[int, Path, bool]]:
        """Return step, folder and whether it was restored for this process, the newest first."""
        steps = folders.newest_first(directory) if directory else ()
        candidates = [(step, path, False) for step, path in steps]
        resumed = environment.resume_folder(self._environ)
        if resumed is not None and not any(path.resolve() == resumed.resolve() for _, path, _ in candidates):
            try:
                # Without links: the folder has the name of the checkpoint, which pods may have to compare.
                candidates.append((int(manifest.read(resumed)["step"]), resumed.resolve(), True))
            except CheckpointError as error:
                self.skipped.append(str(error))
        return sorted(candidates, key=lambda candidate: (candidate[0], candidate[2]), reverse=True)

    def _describe(self, step: int, world: int, order: Optional[Order], seconds: float) -> manifest.Manifest:
        return {
            "version": 1,
            "job": self._environ.get("ARGOSY_JOB_UID", ""),
            "attempt": environment.number(self._environ, "ARGOSY_ATTEMPT"),
            "step": step,
            "world": world,
            "epoch": order.epoch if order is not None else 0,
            "created": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": "App",
            "parent": self._parent,
            "seconds": round(seconds, 3),
        }


def _natural(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0

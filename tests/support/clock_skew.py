"""Sets back the clock of a component of a control plane while it runs, not the clock of the machine.

A small library, compiled on the spot, is preloaded into every process of the control plane. It adds to the
time of day an offset that it reads from a shared file; monotonic clocks are unchanged, as when an
administrator sets a clock.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PARTS = ("argosy.local.apiserver", "argosy.local.node", "argosy.local.controllers", "operator")
"""The components, by a word of their command lines; child processes with this prefix have the same clock."""

_OFFSET = struct.Struct("=q")
_SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *offset;

__attribute__((constructor)) static void begin(void) {
    const char *parts[] = {PARTS};
    char line[4096];
    int source = open("/proc/self/cmdline", O_RDONLY);
    int shared = open(FILE_NAME, O_RDONLY);
    ssize_t length = source < 0 ? -1 : read(source, line, sizeof line - 1);
    const long long *table = shared < 0 ? MAP_FAILED : mmap(0, 4096, PROT_READ, MAP_SHARED, shared, 0);
    if (source >= 0) close(source);
    if (shared >= 0) close(shared);
    if (length <= 0 || table == MAP_FAILED) return;
    line[length] = 0;
    for (char *word = line; word < line + length; word += strlen(word) + 1)
        for (unsigned part = 0; part < sizeof parts / sizeof *parts; part++)
            if (!offset && !strncmp(word, parts[part], strlen(parts[part]))) offset = table + part;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    int of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!result && of_day && offset) time->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
"""


@dataclass(frozen=True)
class Clocks:
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Clocks":
        """Compile the library; needs a C compiler."""
        clocks = cls(folder)
        clocks._table.write_bytes(bytes(4096))
        parts = ", ".join(f'"{part}"' for part in PARTS)
        source = _SOURCE.replace("PARTS", parts, 1).replace("FILE_NAME", f'"{clocks._table}"')
        command = [
            compiler() or "cc",
            "-shared",
            "-fPIC",
            "-O1",
            "-w",
            "-x",
            "c",
            "-",
            "-o",
            str(clocks._library),
        ]
        subprocess.run(command, input=source, text=True, check=True)
        return clocks

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables for the start of the control plane."""
        return {"LD_PRELOAD": str(self._library)}

    def set_back(self, parts: Iterable[str], seconds: int) -> None:
        """Set the clocks of these components back by so many seconds, also after a restart of theirs."""
        handle = os.open(self._table, os.O_WRONLY)
        try:
            for part in parts:
                os.pwrite(handle, _OFFSET.pack(-seconds), PARTS.index(part) * _OFFSET.size)
        finally:
            os.close(handle)

    @property
    def _library(self) -> Path:
        return self.folder / "clocks.so"

    @property
    def _table(self) -> Path:
        return self.folder / "clocks"


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")

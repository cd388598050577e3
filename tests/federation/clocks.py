"""A clock for real processes that a test can set, without touching the machine's.

A small library, compiled when it is needed and loaded ahead of the C library, adds a number of seconds from a file to
the time of day. Time that only passes (``CLOCK_MONOTONIC``) stays as it is, as when a person sets a clock.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int *ahead;

__attribute__((constructor)) static void look(void) {
    const char *path = getenv("TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, sizeof(int), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) ahead = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    int failed = clock_gettime(CLOCK_REALTIME, &found);
    if (!failed) now->tv_sec = found.tv_sec, now->tv_usec = found.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
"""


class SettableClock:
    """The time of day of all processes that are started with :attr:`environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set_ahead(0)
        library = folder / "clock.so"
        compiler = shutil.which("cc")
        self.works = compiler is not None
        if compiler is not None:
            command = [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library)]
            self.works = subprocess.run(command, input=SOURCE.encode(), capture_output=True).returncode == 0
        self.environment = {"LD_PRELOAD": str(library), "TEST_CLOCK": str(self._file)} if self.works else {}

    def set_ahead(self, seconds: int) -> None:
        """Set the clock to `seconds` ahead of the machine's."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=i", seconds))
            os.fsync(file.fileno())

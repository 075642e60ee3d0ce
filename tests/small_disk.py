"""A small file system of a test's own, that can be filled to the last byte."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

_ENDS_IT = 'read _; umount -l "$1"; rmdir "$1"'
_PIECE = 4096


class SmallDisk:
    """The file system while it is there.

    Attributes:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, leave: int = 0) -> None:
        """Fill it, but for so many bytes."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_PIECE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            file.truncate(max(0, file.tell() - leave))

    def empty(self) -> None:
        """Take out what it was filled with."""
        self._ballast.unlink()


@contextmanager
def small_disk(megabytes: int) -> Generator[SmallDisk]:
    """Such a disk, where that is allowed; it goes with this process, whatever its end is."""
    folder = mkdtemp(prefix="turnlog-disk-")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", folder]
    if sys.platform != "linux" or os.getuid() or subprocess.run(mount, check=False).returncode:
        Path(folder).rmdir()
        pytest.skip("no file system may be mounted here")
    ends_it = ["/bin/sh", "-c", _ENDS_IT, "sh", folder]
    with subprocess.Popen(ends_it, stdin=subprocess.PIPE, start_new_session=True):
        yield SmallDisk(Path(folder))

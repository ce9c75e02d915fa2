"""Machines that share no folder: processes, each in a mount namespace of its own.

Folders for temporary files are empty and private, everything else is read only, as an image is. So
whatever a machine writes, no other can see.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from spark.environments import ROOT

PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - they are hidden, not used
CACHE = Path("/tmp/tamis-library")  # noqa: S108 - in the namespace of a machine only

# $1 names the folders to hide and $2 those to show all the same; both are lists with colons.
_SCRIPT = """
set -e
IFS=:
mount -t tmpfs tmpfs /mnt
number=0
for shown in $2; do
  mkdir /mnt/$number
  mount --bind "$shown" /mnt/$number
  number=$((number + 1))
done
for hidden in $1; do mount -t tmpfs tmpfs "$hidden"; done
number=0
for shown in $2; do
  mkdir -p "$shown"
  mount --bind /mnt/$number "$shown"
  mount -o remount,bind,ro "$shown"
  number=$((number + 1))
done
# What the package writes beside itself, such as compiled kernels, stays with the machine.
mkdir /tmp/above /tmp/work
mount -t overlay overlay -o "lowerdir=$3,upperdir=/tmp/above,workdir=/tmp/work" "$3"
mount -o remount,bind,ro /
unset IFS
shift 3
cd /tmp
exec "$@"
"""


def on_a_machine(command: Sequence[str | Path], images: Sequence[Path] = ()) -> list[str]:
    """Return a command in a mount namespace, which sees the package and what `images` name."""
    shown = ":".join(map(str, (ROOT, *images)))
    private = ":".join(PRIVATE)
    package = str(ROOT / "src" / "tamis")
    unshare = ["unshare", "--mount", "--propagation", "private"]
    script = ["sh", "-c", _SCRIPT, "machine", private, shown, package]
    return [*unshare, *script, *map(str, command)]


def variables() -> dict[str, str]:
    """Return the environment of a machine, without folders of the one that runs the tests."""
    private = {"TMPDIR": "/tmp", "HOME": "/tmp", "TAMIS_LIBRARY_CACHE": str(CACHE)}  # noqa: S108
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests")))
    return {**os.environ, **private, "PYTHONPATH": paths}


def copies(process: int) -> list[Path]:
    """Return what a machine has fetched; the machine is that of a process."""
    folder = Path(f"/proc/{process}/root{CACHE}")
    return sorted(path for path in folder.glob("*") if len(path.name) == 64)


def why_not() -> str:
    """Return why there can be no such machines here; nothing if there can."""
    if shutil.which("unshare") is None:
        return "the test needs unshare"
    tried = subprocess.run(on_a_machine(["true"]), capture_output=True, text=True, check=False)  # noqa: S603
    return tried.stderr.strip().partition("\n")[0] if tried.returncode else ""

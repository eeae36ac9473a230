"""Environments of the processes that the oracle starts: ours find this package, a candidate's finds nothing of ours."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ptxbench.toolchain.cache import default_cache_dir

PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_KEPT_ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH")
"""What a candidate's process needs to find the driver and its three libraries; everything else stays out."""


def import_path() -> str:
    """PYTHONPATH under which our own trusted processes find this package, installed or not."""
    return os.pathsep.join(filter(None, (str(PACKAGE_PARENT), os.environ.get("PYTHONPATH"))))


def parent_folder() -> Path | None:
    """Where workers have their folders: the temporary folder (None) or, if no code may be loaded from there, the cache.

    Raises OSError.
    """
    if not os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOEXEC:
        return None
    folder = default_cache_dir() / "sandboxes"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def minimal_environment(folder: Path) -> dict[str, str]:
    """No secrets, no user settings: paths to the driver and a private temporary folder."""
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    if paths := environment.pop("PYTHONPATH", None):
        # Nothing of ours, which this process has from ``import_path``.
        others = [path for path in paths.split(os.pathsep) if path and path != str(PACKAGE_PARENT)]
        environment |= {"PYTHONPATH": os.pathsep.join(others)} if others else {}
    return environment | {
        "PATH": os.defpath,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "CUDA_CACHE_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

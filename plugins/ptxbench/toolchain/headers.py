"""Which TVM-FFI headers a candidate is built with: our light front, or the full ones of apache-tvm-ffi."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Literal

Headers = Literal["light", "full"]

LIGHT_DIR = Path(__file__).parent / "include"

# Links in the build folder, so that no path of the machine reaches an object or a message.
LIGHT_LINK = "light"
FULL_LINK = "tvm-ffi"

# Headers of the plain C ABI are the real ones in both modes.
_ABI_HEADERS = frozenset({"tvm/ffi/c_api.h", "tvm/ffi/extra/c_env_api.h"})

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"](tvm/ffi/[^>\"]+)[>\"]", re.MULTILINE)

# A hint only: a candidate that is missed here fails with the light headers and is then built with the full ones.
_BEYOND_LIGHT = re.compile(
    r"\bffi::(?:Tensor|Array|Map|List|Dict|Tuple|Variant|Optional|String|Bytes|Function|TypedFunction|PackedArgs|"
    r"Any|AnyView|Object|ObjectRef|ObjectPtr|Shape|Module|reflection)\b"
    r"|\bTVM_FFI_(?:STATIC_INIT_BLOCK|DCHECK\w*|I?CHECK_NOTNULL|CHECK_SAFE_CALL|SAFE_CALL_\w+|LOG_AND_THROW|DECLARE_\w+)"
)


def header_choices(source: str) -> tuple[Headers, ...]:
    """The headers to try, in order.

    Light comes first unless the source shows that it needs more. Both are tried then, because a source may rely on a
    standard header that only the full ones pull in: no candidate may fail for our front's sake.
    """
    included = set(_INCLUDE.findall(source))
    if not included - _ABI_HEADERS:
        return ("light",)
    if included - _ABI_HEADERS - light_headers() or _BEYOND_LIGHT.search(source):
        return ("full",)
    return ("light", "full")


def include_dirs(headers: Headers) -> tuple[str, ...]:
    """Include path relative to the build folder, first to last."""
    return (LIGHT_LINK, FULL_LINK) if headers == "light" else (FULL_LINK,)


def link_headers(folder: Path, full_dir: Path) -> None:
    """Makes the folder names of ``include_dirs`` point to the headers."""
    (folder / LIGHT_LINK).symlink_to(LIGHT_DIR, target_is_directory=True)
    (folder / FULL_LINK).symlink_to(full_dir, target_is_directory=True)


@cache
def light_headers() -> frozenset[str]:
    """Names, as they are included, of the headers that the light front has."""
    return frozenset(str(path.relative_to(LIGHT_DIR)) for path in LIGHT_DIR.rglob("*.h"))


@cache
def light_digest() -> str:
    """SHA-256 over names and contents of the light headers: part of the build cache's key."""
    digest = hashlib.sha256()
    for name in sorted(light_headers()):
        digest.update(f"{name}\0".encode() + (LIGHT_DIR / name).read_bytes() + b"\0")
    return digest.hexdigest()

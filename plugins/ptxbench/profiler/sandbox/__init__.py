"""The candidate's process: short-lived, torch-free, holding nothing worth stealing.

``__main__.py`` is the program. It loads the other files of this folder as a package of their own, so that nothing of
``ptxbench`` is imported beside a candidate; the oracle and the trusted worker use the same files from here.
"""

from .activities import OUTLASTING_SLACK_NS, STRAY_SLACK_NS, Cupti, Recorder
from .binding import check, open_arena
from .limits import restrict
from .loading import Loads
from .messages import (
    CALL,
    CONTEXT,
    EXPLAIN,
    MAX_IMAGE_BYTES,
    MAX_LAUNCHES,
    MAX_MESSAGE_CHARS,
    MAX_MODULES,
    MAX_NAMES,
    WARM_UP,
)
from .sealing import NONCE_BYTES, SECRET_BYTES, STATUS_BYTES, Seal, Status
from .serving import Answers, Ear, announce, call_once, failure, serve_calls
from .tensors import DeviceTensor

__all__ = [
    "CALL",
    "CONTEXT",
    "EXPLAIN",
    "MAX_IMAGE_BYTES",
    "MAX_LAUNCHES",
    "MAX_MESSAGE_CHARS",
    "MAX_MODULES",
    "MAX_NAMES",
    "NONCE_BYTES",
    "OUTLASTING_SLACK_NS",
    "SECRET_BYTES",
    "STATUS_BYTES",
    "STRAY_SLACK_NS",
    "WARM_UP",
    "Answers",
    "Cupti",
    "DeviceTensor",
    "Ear",
    "Loads",
    "Recorder",
    "Seal",
    "Status",
    "announce",
    "call_once",
    "check",
    "failure",
    "open_arena",
    "restrict",
    "serve_calls",
]

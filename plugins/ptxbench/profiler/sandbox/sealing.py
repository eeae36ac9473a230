"""Answers that belong to one request of one job: fixed-size statuses, and bodies of other size, each with a token.

The token is a keyed hash over the request's nonce, the answer's number within the job and the answer. It keeps apart
what was written without the job's secret or before the request: what a candidate prints, what another job's process
says, an answer sent ahead. It proves no more: a candidate shares the address space with the secret and can find it
there, so what an answer says stays a claim (``ptxbench.profiler.replies``).
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

NONCE_BYTES = SECRET_BYTES = TOKEN_BYTES = 16
_STATUS = struct.Struct("<IIi")
STATUS_BYTES = _STATUS.size + TOKEN_BYTES
_DONE, _FAILED = 0, 1


class Status(NamedTuple):
    """How a request went."""

    failed: bool
    code: int
    """CUDA error that the context is left with; 0 for none."""


class Seal:
    """One end of a job. Both ends count the answers."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._number = 0

    def close_status(self, nonce: bytes, status: Status) -> bytes:
        """A fixed-size answer."""
        content = _STATUS.pack(_FAILED if status.failed else _DONE, self._number, status.code)
        return content + self._token(nonce, content)

    def close_body(self, nonce: bytes, body: bytes) -> bytes:
        """An answer of any size."""
        return self._token(nonce, body) + body

    def open_status(self, nonce: bytes, answer: bytes) -> Status | None:
        """What a fixed-size answer says; None if it is none to this request."""
        number = self._number
        content, token = answer[: _STATUS.size], answer[_STATUS.size :]
        if len(answer) != STATUS_BYTES or not compare_digest(token, self._token(nonce, content)):
            return None
        kind, found, code = _STATUS.unpack(content)
        return Status(kind == _FAILED, code) if found == number and kind in (_DONE, _FAILED) else None

    def open_body(self, nonce: bytes, answer: bytes) -> bytes | None:
        """What another answer says; None if it is none to this request."""
        token, body = answer[:TOKEN_BYTES], answer[TOKEN_BYTES:]
        return body if compare_digest(token, self._token(nonce, body)) else None

    def _token(self, nonce: bytes, content: bytes) -> bytes:
        number = self._number.to_bytes(8, "little")
        self._number += 1
        return blake2b(nonce + number + content, key=self._secret, digest_size=TOKEN_BYTES).digest()

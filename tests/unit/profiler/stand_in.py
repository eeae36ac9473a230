"""Programs that speak a worker's channel in place of the sandbox's, which needs a device."""

from collections.abc import Callable
from pathlib import Path

from ptxbench.profiler.worker import SANDBOX_PROGRAM, Worker

OPENING = f"""\
import json, os, signal, subprocess, sys, time
from multiprocessing.connection import Client, Connection

sys.path.insert(0, {str(SANDBOX_PROGRAM.parents[1])!r})

class Talk:
    # Puts the seals of a job around what a program says, which then is as short as without them.

    def __init__(self, channel):
        self.channel, self.seal, self.nonce, self.kind = channel, None, None, b""
        self.waiting = []

    def hear(self):
        if self.waiting:
            return self.waiting.pop()
        message = self.channel.recv_bytes()
        self.kind = message[:1]
        if self.seal and self.kind in (b"c", b"w"):
            self.nonce = message[1:17]
            self.waiting += [message[17:]] if self.kind == b"w" else []
            return self.kind
        if self.kind == b"{{":
            job = json.loads(message)
            if "secret" in job:
                from sandbox import Seal
                self.seal, self.kind = Seal(bytes.fromhex(job["secret"])), b"c"
            if "nonce" in job:
                self.nonce = bytes.fromhex(job["nonce"])
        return message

    def say(self, answer):
        nonce, self.nonce = self.nonce, None
        if nonce is None:
            self.channel.send_bytes(answer)
        elif self.kind == b"{{":
            self.channel.send_bytes(self.seal.close_body(nonce, answer))
        else:
            from sandbox import Status
            failed = answer != b"o"
            try:
                code = json.loads(answer).get("code", 0) if failed else 0
            except ValueError:
                return self.channel.send_bytes(answer)  # no answer of any form
            self.channel.send_bytes(self.seal.close_status(nonce, Status(failed, code)))
            if failed:
                nonce = bytes.fromhex(json.loads(self.channel.recv_bytes())["nonce"])
                self.channel.send_bytes(self.seal.close_body(nonce, answer))
"""
CONNECT = """\
flag, where = sys.argv[-2:]
channel = Connection(int(where)) if flag == "--fd" else Client(where, "AF_UNIX")
talk = Talk(channel)
say, hear = talk.say, talk.hear
"""
IMPORTED = 'say(json.dumps({"stage": "imported"}).encode())\nassert hear() == b"x"\n'
READY = IMPORTED + 'say(json.dumps({"stage": "ready"}).encode())\n'
LOADED = 'job = json.loads(hear())\nsay(b"o")\n'

HONEST = """\
calls = 0
while True:
    message = hear()
    if message == b"c":
        calls += 1
        say(b"o")
    elif message == b"w":
        hear()
        say(b"o")
    elif json.loads(message)["op"] == "collect":
        answer = {"spans": [1000] * calls, "activities": [1] * calls, "stray": 0, "launches": []}
        say(json.dumps(answer).encode())
        calls = 0
    else:
        break
"""

Start = Callable[..., Worker]
"""``start(body, by_path=False)``: a worker that runs ``OPENING + body``."""


def write_program(folder: Path, body: str) -> Path:
    """The program ``OPENING + body``, each in a file of its own."""
    path = folder / f"stand_in_{len(list(folder.iterdir()))}.py"
    path.write_text(OPENING + body)
    return path


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"

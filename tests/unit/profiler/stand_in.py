"""Programs that speak a worker's channel in place of the sandbox's, which needs a device."""

from collections.abc import Callable
from pathlib import Path

from ptxbench.profiler.worker import SANDBOX_PROGRAM, Worker

OPENING = f"""\
import json, os, signal, subprocess, sys, time
from multiprocessing.connection import Client, Connection

sys.path.insert(0, {str(SANDBOX_PROGRAM.parents[1])!r})
"""
CONNECT = """\
flag, where = sys.argv[-2:]
channel = Connection(int(where)) if flag == "--fd" else Client(where, "AF_UNIX")
say, hear = channel.send_bytes, channel.recv_bytes
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

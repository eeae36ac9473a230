"""The service under load: clients that submit, wait and think, and a server that is killed in between.

    python -m tests.perf.bench_serve --clients 200 --tasks 5000 --kills 2

Service, evaluation process and clients share this machine. A submission's latency is from its first byte sent to its
acknowledgement, by which it is on disk; attempts that met a dead server are counted apart and not timed.
``busy_cores`` is what the whole machine did meanwhile: what is beyond about 1.1 of it is others' work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from tests.support.service import Fleet, Load, Service, serving, stored_kernels


def busy_seconds() -> float:
    """Of all cores since the machine started: user, nice, system and the rest, without idle and waiting."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


async def loaded(service: Service, options: argparse.Namespace) -> tuple[Load, float]:
    """The clients' account, and how long it took in seconds; the server is killed at equal distances."""
    fleet = Fleet(service, clients=options.clients, tasks=options.tasks, kernels=stored_kernels())

    async def killing() -> None:
        for number in range(options.kills):
            while fleet.finished < options.tasks * (number + 1) / (options.kills + 1):
                await asyncio.sleep(0.05)
            await asyncio.to_thread(service.kill)
            await asyncio.to_thread(service.start)

    started = time.perf_counter()
    _, load = await asyncio.gather(killing(), fleet.run(ramp_s=options.ramp, think_s=options.think))
    return load, time.perf_counter() - started


def report(load: Load, seconds: float, store: Path, busy: float, options: argparse.Namespace) -> dict[str, object]:
    """Figures, and what would be wrong: lost or doubled results."""
    with closing(sqlite3.connect(store)) as connection, connection:
        statuses = dict(connection.execute("SELECT status, count(*) FROM tasks GROUP BY status").fetchall())
    correct = sum(
        all(result["verdict"]["outcome"] == "correct" for result in answers[0]["results"])
        for answers in load.results.values()
    )
    return {
        "clients": options.clients,
        "tasks": options.tasks,
        "kills": options.kills,
        "cores": os.cpu_count(),
        "busy_cores": round(busy / seconds, 2),
        "seconds": round(seconds, 1),
        "tasks_per_s": round(options.tasks / seconds, 1),
        "submit_ms": {f"p{share:g}": round(load.percentile(share / 100), 2) for share in (50, 90, 99, 99.9, 100)},
        "finished": len(load.results),
        "correct": correct,
        "answered_twice": sum(len(answers) > 1 for answers in load.results.values()),
        "distinct_ids": len(set(load.ids.values())),
        "in_store": statuses,
        "broken_requests": load.broken,
        "told_to_come_again": load.busy,
        "submitted_again": load.resubmitted,
    }


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--ramp", type=float, default=5.0, help="seconds over which clients begin")
    parser.add_argument("--think", type=float, default=1.0, help="mean seconds between a result and the next kernel")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), "--profiler", "replay") as service:
        busy = busy_seconds()
        load, seconds = asyncio.run(loaded(service, options))
        busy = busy_seconds() - busy
        found = report(load, seconds, Path(folder) / "store" / "tasks.sqlite", busy, options)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    whole = found["finished"] == found["correct"] == found["distinct_ids"] == options.tasks
    return 0 if whole and found["in_store"] == {"completed": options.tasks} and not found["answered_twice"] else 1


if __name__ == "__main__":
    sys.exit(main())

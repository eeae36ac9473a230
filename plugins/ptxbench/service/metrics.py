"""What Prometheus is told, under ``/metrics``."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ptxbench.client.shapes import TaskKind, TaskStatus

_FAST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SLOW_S = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """Counters of one service, in a registry of its own. Methods may be called from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self._requests = Counter("ptxbench_requests", "HTTP requests.", ("operation", "status"), registry=own)
        self._latency = Histogram(
            "ptxbench_submit_seconds", "From a submission's arrival to its answer.", buckets=_FAST_S, registry=own
        )
        self._submitted = Counter("ptxbench_tasks_submitted", "Tasks that were new.", ("kind",), registry=own)
        self._evaluated = Counter("ptxbench_tasks_ended", "Tasks that ended.", ("kind", "status"), registry=own)
        self._seconds = Histogram(
            "ptxbench_task_seconds", "Wall time of one task.", ("kind",), buckets=_SLOW_S, registry=own
        )
        self.requeued = Counter(
            "ptxbench_tasks_requeued", "Tasks that an earlier service left unfinished.", registry=own
        )
        self.restarts = Counter("ptxbench_evaluation_restarts", "Evaluation processes that died.", registry=own)
        self.lost_writes = Counter("ptxbench_store_failures", "Results that could not be stored.", registry=own)
        self._commits = Histogram(
            "ptxbench_store_commit_seconds", "One transaction of the task store.", buckets=_FAST_S, registry=own
        )
        self._writes = Counter("ptxbench_store_writes", "Writes to the task store.", registry=own)
        self._waiting = Gauge("ptxbench_tasks_waiting", "Tasks that wait.", ("priority",), registry=own)
        self._given = Gauge("ptxbench_tasks_given", "Tasks that the evaluation process has.", registry=own)
        self._ready = Gauge("ptxbench_evaluation_ready", "Whether there is an evaluation process.", registry=own)

    def answered(self, operation: str, status: int, seconds: float, *, submission: bool) -> None:
        """A request was answered."""
        self._requests.labels(operation, str(status)).inc()
        if submission and status == 200:
            self._latency.observe(seconds)

    def submitted(self, kind: TaskKind) -> None:
        """A new task is on disk."""
        self._submitted.labels(kind).inc()

    def evaluated(self, kind: TaskKind, status: TaskStatus, seconds: float) -> None:
        """A task ended."""
        self._evaluated.labels(kind, status).inc()
        self._seconds.labels(kind).observe(seconds)

    def stored(self, writes: int, seconds: float) -> None:
        """A transaction of the store."""
        self._writes.inc(writes)
        self._commits.observe(seconds)

    def states(self, waiting: Mapping[str, int], given: int, ready: bool) -> None:
        """What is so now."""
        for priority, count in waiting.items():
            self._waiting.labels(priority).set(count)
        self._given.set(given)
        self._ready.set(ready)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

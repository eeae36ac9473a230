"""Talking to a PTXBench service (``ptxbench serve``) from agents and training loops: ``Client`` and ``AsyncClient``.

    with Client("http://127.0.0.1:8600") as client:
        submitted = client.evaluate(cuda_solution("gemm_n7168_k5120", source))
        for result in client.wait(submitted.task_id).results:
            print(result.verdict.outcome, result.verdict.speedup)

httpx (extra ``serve``) is imported when a client is made.
"""

from ptxbench.client.asynchronous import AsyncClient
from ptxbench.client.blocking import Client
from ptxbench.client.calls import cuda_solution
from ptxbench.client.retrying import ServiceError
from ptxbench.client.shapes import ServiceHealth, Submitted, Task, TaskResult

__all__ = [
    "AsyncClient",
    "Client",
    "ServiceError",
    "ServiceHealth",
    "Submitted",
    "Task",
    "TaskResult",
    "cuda_solution",
]

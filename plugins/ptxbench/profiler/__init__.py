"""The GPU side: oracle, sandbox, tools, and the protocol through which the rest uses them."""

from ptxbench.profiler.protocol import Health, Profiler, SafetyTool, open_profiler

__all__ = ["Health", "Profiler", "SafetyTool", "open_profiler"]

"""The GPU side: oracle, sandbox, tools, and the protocol through which the rest uses them."""

from ptxbench.profiler.protocol import DeviceHealth, Health, Profiler, SafetyTool, open_profiler

__all__ = ["DeviceHealth", "Health", "Profiler", "SafetyTool", "open_profiler"]

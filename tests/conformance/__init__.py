"""One suite for everything that implements ``Profiler``: the same inputs, the same verdicts."""

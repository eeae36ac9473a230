"""All GPUs of a host as one profiler: who measures what when, and which of them can be trusted to."""

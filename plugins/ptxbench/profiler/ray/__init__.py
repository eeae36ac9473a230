"""Many hosts: a profiler whose GPUs are actors of a Ray cluster, and whose builds are its tasks.

Membership, placement, restarts and transport are Ray's own. What is ours is small: which actor may measure which case
(``resources``), what an actor does (``actor``), who has which actor now (``devices``), and the ``Profiler`` in front.
"""

"""The profiling side as an HTTP service: ``ptxbench serve`` (docs/serve.md).

    HTTP process      app, guard, broker, store: accepts, keeps, answers; never builds, measures or judges
    evaluation process  worker, judging: one interpreter of its own, so that judging delays no submission

The first keeps every task in SQLite before it is acknowledged. The second may die at any time, and so may the first.
"""

"""The pytest face. ``pytest_plugin`` is the module that pytest loads; ``outcomes`` is what test functions call."""

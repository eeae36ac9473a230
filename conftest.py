"""Loads the plugin from this checkout, so that a clone works without being installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "plugins"))

pytest_plugins = ["ptxbench.plugin.pytest_plugin"]

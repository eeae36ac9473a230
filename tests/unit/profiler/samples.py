"""Reports of the tools, by file name."""

from pathlib import Path

TOOLS = Path(__file__).parents[2] / "data" / "tools"


def report(name: str) -> str:
    return (TOOLS / name).read_text()

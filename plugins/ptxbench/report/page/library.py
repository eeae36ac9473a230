"""The plotting library, which only reports need: imported late, and missed with one clear message."""

from __future__ import annotations

from ptxbench.errors import InputError

HOW = "install it with: pip install 'ptxbench[report]'"


def plotly_script() -> str:
    """Plotly's own JavaScript. Raises InputError where plotly is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise InputError(f"expected the package plotly, which draws the figures, found: {error}; {HOW}") from error
    return str(get_plotlyjs())

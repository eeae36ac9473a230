"""``python -m ptxbench``."""

import sys

from ptxbench.cli import main

if __name__ == "__main__":
    sys.exit(main())

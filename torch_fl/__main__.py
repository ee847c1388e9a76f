"""`python -m torch_fl COMMAND`; the package's `__init__` does not start the plugin on the way here."""

from __future__ import annotations

import sys

from torch_fl_boot.cli import main

if __name__ == "__main__":
    sys.exit(main())

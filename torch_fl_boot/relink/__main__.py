"""`python -m torch_fl_boot.relink COMMAND`: the commands of torch_fl, also where torch_fl itself is gone."""

from __future__ import annotations

import sys

from torch_fl_boot.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m bundle`: the command line of the build pipeline."""

import sys

from bundle.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Print the CMake settings of the backend that the environment asks for; exit 2, with the choices, if there is none."""

import sys
from pathlib import Path

# Started by CMake in isolated mode, which knows no folder of the project.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bundle.selection import main

sys.exit(main())

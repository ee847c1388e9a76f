"""What relink leaves beside the originals, for the day when torch_fl is gone."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from torch_fl_boot.relink.journal import BACKUP, SCRIPT

# Of one line, since that is what Python executes of a .pth file; it costs one stat at interpreter start.
HOOK_TEXT = (
    f"import os; _torch_fl = os.path.join(sitedir, 'torch', 'lib', {BACKUP!r}, {SCRIPT!r}); "
    "os.path.lexists(os.path.join(sitedir, 'torch_fl', '_bundle.json')) or "
    "os.path.isfile(_torch_fl) and __import__('runpy').run_path(_torch_fl, run_name='torch_fl_heal')\n"
)

README_TEXT = """\
This torch is relinked: libraries of its lib folder are symbolic links into torch_fl, and the originals are kept here.
Give them back with

    python -m torch_fl restore
    python {script}          (where torch_fl has been uninstalled)

Do not delete this folder before: it holds the only copies. journal.*.json says what belongs where.
"""

_MAIN = """\
import sys
from pathlib import Path
TORCH = str(Path(__file__).absolute().parent.parent.parent.parent)
if __name__ == "__main__":
    if sys.version_info < (3, 10):
        sys.exit("torch_fl: error: this needs Python 3.10 or newer\\nhint: run it with the Python that torch is for")
    from torch_fl_boot.cli import main
    sys.exit(main(["restore", "--torch", TORCH, *sys.argv[1:]]))
from torch_fl_boot.cli_relink import heal
heal(TORCH)
"""


def restore_script() -> bytes:
    """Return a zip application of the runtime's own sources, stored readably: restore does not need torch_fl."""
    package = Path(__file__).parents[1]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package.parent).as_posix()
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return out.getvalue()

"""What `torch_fl.pth` runs at every interpreter start: a finder that leads the execution of `torch` past us.

Looking torch up maps nothing and gives the very spec that it would give without us, but for one attribute of that
spec's own loader object, `exec_module`, which removes itself when it is called. Afterwards nothing about torch tells of
the hook.

Nothing is imported but what every interpreter has already. Interpreters that never import torch pay for this module
alone; and Python holds its global import lock while it asks a finder, so that an import in here waits for threads which
wait for that lock. Hence also the quoted annotations: `__future__` would be an import.
"""

import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

TORCH = "torch"
REST = "torch_fl_boot.hook_import"


class Execution:
    """Stands for the `exec_module` of one loader until that loader executes torch."""

    def __init__(self, loader: "Loader") -> None:
        self._loader, self._real = loader, loader.exec_module
        self._kept = vars(loader).get("exec_module")

    def __call__(self, module: "ModuleType") -> None:
        """Load the bundle, then execute the module as its loader does."""
        if module.__name__ != TORCH:  # a loader of many modules
            self._real(module)
            return
        del vars(self._loader)["exec_module"]
        if self._kept is not None:
            vars(self._loader)["exec_module"] = self._kept
        execute = get_execute()
        if execute is not None:
            execute(self._real, module)
        else:
            self._real(module)


def get_execute() -> "Callable[[Callable[[ModuleType], None], ModuleType], None] | None":
    """Return the rest of the runtime; None where it was uninstalled since this process started, or is damaged."""
    try:
        # The import lock is free by now, and torch is wanted.
        from torch_fl_boot.hook_import import execute  # noqa: PLC0415
    except Exception as err:  # noqa: BLE001 - torch must not suffer from what has become of us
        if getattr(err, "name", None) != REST:
            from torch_fl_boot.notice import warn  # noqa: PLC0415 - as above

            warn(err, where=", on its own libraries")
        return None
    return execute


def lead_past_us(loader: "Loader | None") -> None:
    """Have the loader's next execution of torch come to us; a class or a loader without attributes cannot be told."""
    attributes = getattr(loader, "__dict__", None)
    if loader is None or isinstance(loader, type) or not isinstance(attributes, dict):
        return
    if hasattr(loader, "exec_module") and not isinstance(attributes.get("exec_module"), Execution):
        attributes["exec_module"] = Execution(loader)


class TorchFinder:
    """A finder for sys.meta_path that knows torch alone, from the finders after it."""

    def __init__(self) -> None:
        # Threads that are looking: another hook may ask all finders again, this one included.
        self._looking: set[int] = set()

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return what the others know of torch, with its execution led past us; nothing of other modules."""
        thread = get_ident()
        if fullname != TORCH or thread in self._looking:
            return None
        self._looking.add(thread)
        try:
            spec = self._ask_others(path, target)
        finally:
            self._looking.discard(thread)
        if spec is not None:
            lead_past_us(spec.loader)
        return spec

    def _ask_others(self, path: "Sequence[str] | None", target: "ModuleType | None") -> "ModuleSpec | None":
        finders = list(sys.meta_path)
        place = finders.index(self) + 1 if self in finders else 0
        for finder in finders[place:]:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(TORCH, path, target) if find_spec else None
            if spec is not None:
                return spec
        return None


def install() -> None:
    """Put the finder first, once: a virtual environment has its .pth files processed twice."""
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchFinder())


install()

"""Torch must survive whatever becomes of torch_fl: damaged, half replaced, unreadable, passed by, without a stderr."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.support.commands import WITHOUT_PRIVILEGES
from tests.support.fake_torch import CORE, THEN_TORCH, TRY, complete_site, hooked_site
from tests.unit.test_runtime_faults import FAULTS
from tests.unit.test_runtime_hook import NO_PLUGIN, ON_BUNDLE, STATE, STOCK, WARNING, state

PERMISSION = "hint: give this user the right to read the files and to enter the directories above them\n"


def edit(site, name, text):
    """Change a module of the runtime as a half-done upgrade would; its bytecode goes."""
    (site.root / "torch_fl_boot" / name).write_text(text)
    shutil.rmtree(site.root / "torch_fl_boot/__pycache__")


@pytest.mark.parametrize("module", ["hook_import", "start", "manifest", "attach"])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("def (", "SyntaxError: ", id="half-written"),
        pytest.param("", "ImportError: cannot import name ", id="of-another-version"),
        pytest.param("1 / 0", "ZeroDivisionError: ", id="mistake"),
    ],
)
def test_damaged_runtime_must_leave_torch_importable_with_one_line(tmp_path, module, text, error):
    site = hooked_site(tmp_path)
    edit(site, f"{module}.py", text)
    done = site.run("import torch; print(torch.__version__)")
    if module == "attach":
        error = error.replace("ImportError: cannot import name ", "AttributeError: ")
    assert (done.stdout, done.stderr.count("\n")) == ("2.10.0+cpu\n", 1), done.stderr
    assert done.stderr.startswith((WARNING + error, NO_PLUGIN + error))
    assert "; hint: " in done.stderr


@pytest.mark.parametrize("error", ["RuntimeError('c10')", "OSError('libx.so')", "AttributeError('_private')"])
def test_plugin_that_fails_in_any_way_must_leave_torch_importable(tmp_path, error):
    site = hooked_site(tmp_path)
    (site.root / "torch_fl/flagos/__init__.py").write_text(f"raise {error}\n")
    done = site.run(STATE)
    assert json.loads(done.stdout) == {**ON_BUNDLE, "registered": 0, "plugin": False}
    assert (done.stderr.startswith(NO_PLUGIN), done.stderr.count("\n")) == (True, 1)


def test_library_that_the_plugin_cannot_open_must_be_a_refusal(tmp_path):
    site = complete_site(tmp_path)
    (site.root / "torch_fl/flagos/__init__.py").write_text("import ctypes\nctypes.CDLL('libnothere.so')\n")
    said = site.run(TRY * 2 + "print('---')\nimport torch\nprint(torch.__version__)").stdout
    refusal = (
        "PluginImportError\nfake: the plugin's own libraries could not be loaded: libnothere.so: cannot open shared "
        "object file: No such file or directory\n"
        "hint: reinstall torch_fl: pip install --force-reinstall --no-deps <the wheel>\n"
    )
    assert said == refusal * 2 + "---\n2.10.0+cpu\n"


STDERRS = {
    "none": "sys.stderr = None",
    "closed": "sys.stderr.close()",
    "full-disk": "sys.stderr = open('/dev/full', 'w', buffering=1)",
    "no-stream": "sys.stderr = type('Nothing', (), {'flush': lambda _: None})()",
}


@pytest.mark.parametrize("stderr", STDERRS.values(), ids=STDERRS)
def test_stderr_that_takes_nothing_must_not_cost_torch(tmp_path, stderr):
    site = hooked_site(tmp_path)
    FAULTS["file-missing"].damage(site)
    done = site.run(f"import os, sys; {stderr}\nimport torch; print(torch.__version__, flush=True); os._exit(0)")
    assert (done.returncode, done.stdout) == (0, "2.10.0+cpu\n")


@pytest.mark.parametrize("record", ["_build.json", "_bundle.json"])
def test_record_that_this_user_may_not_read_must_be_named(tmp_path, record):
    site = complete_site(tmp_path)
    (site.root / "torch_fl" / record).chmod(0)
    who = f"the bundle in {site.root}/torch_fl cannot be read by user {os.getuid()}"
    text = f"{who}:\n  {record}: cannot be read: Permission denied\n"
    done = site.run(WITHOUT_PRIVILEGES + TRY * 2 + THEN_TORCH)
    assert done.stdout == f"UnreadableBundleError\n{text}{PERMISSION}" * 2 + "---\n2.10.0+cpu\n", done.stderr


def test_package_that_this_user_may_not_enter_must_not_take_torch_away_nor_pass_for_a_plain_build(tmp_path):
    site = hooked_site(tmp_path)
    (site.root / "torch_fl").chmod(0)
    try:
        done = site.run(WITHOUT_PRIVILEGES + "import torch; print(torch.__version__)")
    finally:
        (site.root / "torch_fl").chmod(0o755)
    assert done.stdout == "2.10.0+cpu\n", done.stderr
    assert done.stderr.startswith(
        f"{WARNING}the bundle in {site.root}/torch_fl cannot be read by user {os.getuid()}: _build.json: "
    )


BYPASS = """
import sys
from importlib.machinery import PathFinder
class Finder:
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, path, target) if name == "torch" else None
sys.meta_path.insert(0, Finder())
"""


def test_other_hook_that_gets_past_ours_must_be_told(tmp_path):
    done = hooked_site(tmp_path).run(BYPASS + STATE)
    assert json.loads(done.stdout) == STOCK
    assert done.stderr.startswith(
        f"{NO_PLUGIN}another import hook executed torch without asking the hook of torch_fl: "
    )
    assert done.stderr.endswith(
        "; hint: put `import torch_fl` first, or have the other hook use importlib.util.find_spec\n"
    )


@pytest.mark.parametrize(
    "environ", [{"FLAGOS_HOOK": "0"}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}], ids=["hook", "autoload"]
)
def test_other_hook_must_not_be_told_of_where_ours_is_off(tmp_path, environ):
    assert state(hooked_site(tmp_path), before=BYPASS, **environ) == STOCK


def test_torch_removed_from_sys_modules_must_be_imported_again(tmp_path):
    again = (
        "import torch, sys\nfor n in [n for n in sys.modules if n.partition('.')[0] in {names}]: del sys.modules[n]\n"
    )
    both = again.format(names=("torch", "torch_fl", "torch_fl_boot"))
    assert state(hooked_site(tmp_path), before=both) == ON_BUNDLE


FORK = """
import os, signal, threading
import torch_fl_boot.start
at_work, go_on, attempt = threading.Event(), threading.Event(), torch_fl_boot.start._attempt
def slow(*arguments, **options):
    at_work.set(), go_on.wait()
    return attempt(*arguments, **options)
torch_fl_boot.start._attempt = slow
thread = threading.Thread(target=__import__, args=("torch_fl",))
thread.start(), at_work.wait()
child = os.fork()
go_on.set()
if child == 0:
    signal.alarm(300)  # rather than wait forever
else:
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_child_forked_while_a_thread_imports_must_not_wait_for_that_thread(tmp_path):
    done = hooked_site(tmp_path).run(FORK + "import torch; print(torch.__version__)")
    assert (done.stdout.split(), done.stderr) == (["2.10.0+cpu"] * 2, "")


def test_stand_in_for_torch_must_be_refused_as_such(tmp_path):
    """As tests put it into sys.modules."""
    done = complete_site(tmp_path).run("import sys, types\nsys.modules['torch'] = types.ModuleType('torch')\n" + TRY)
    assert done.stdout.startswith(
        "TorchMissingError\ntorch_fl needs stock torch 2.10.0, but the module torch in this process is a stand-in: "
    )


def test_index_file_of_which_only_a_part_can_be_written_must_not_reach_the_loader(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
    said = complete_site(tmp_path).run(limit + TRY + THEN_TORCH).stdout
    assert said.startswith("IndexFileError\n"), said
    assert "File too large" in said
    assert said.endswith("---\n2.10.0+cpu\n")


@pytest.mark.parametrize(
    "name", ["a b", "a\nb", "a\rb", "a\x0cb", "a\x85b", "\u2028", "\xe9t\xe9", "'\"$", "a%sb", "-x"]
)
def test_environment_of_any_name_must_run_on_the_bundle_and_prove_it(tmp_path, name):
    (tmp_path / name).mkdir()
    site = complete_site(tmp_path / name)
    proof = "import torch_fl; print(torch_fl.mapped_libraries()['libc10.so'])"
    assert site.run(proof).stdout == f"{(str(site.bundle / 'libc10.so'),)}\n"
    copy = site.library(site.root / "torch.libs/libc10-0123abcd.so", payload=b"another")
    with (site.root / "torch/__init__.py").open("a") as stream:
        stream.write(f"ctypes.CDLL({str(copy)!r})\n")
    assert site.run(TRY).stdout.startswith("MixedCoreError\n")


@pytest.mark.parametrize("options", ["-OO", "-B", "-Wdefault", "-bb", "-Xdev", "-Werror", "-Xutf8", "-q"])
def test_more_options_of_the_interpreter_must_not_matter(tmp_path, options):
    assert state(hooked_site(tmp_path), options=[options]) == ON_BUNDLE


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, id="C-locale"),
        pytest.param({"PYTHONIOENCODING": "ascii:strict"}, id="ascii"),
        pytest.param({"PYTHONSAFEPATH": "1"}, id="safe-path"),
        pytest.param({"PYTHONPYCACHEPREFIX": "/proc/nowhere"}, id="no-place-for-bytecode"),
        pytest.param({"LD_LIBRARY_PATH": ":".join(f"/nowhere/{number}" for number in range(8000))}, id="long-path"),
        pytest.param({"LD_LIBRARY_PATH": "/" + "x" * 5000}, id="name-too-long"),
        pytest.param({"PATH": ""}, id="no-path"),
    ],
)
def test_odd_environments_must_not_matter(tmp_path, environ):
    assert state(hooked_site(tmp_path), **environ) == ON_BUNDLE


def test_site_packages_behind_a_link_must_run_on_the_bundle(tmp_path):
    site = complete_site(tmp_path)
    site.root.rename(tmp_path / "real")
    site.root.symlink_to("real")
    done = site.run(TRY + "import torch_fl; print(sorted(torch_fl.bundle().loaded) >= " + repr(sorted(CORE)) + ")")
    assert done.stdout.startswith("imported\n"), done.stdout

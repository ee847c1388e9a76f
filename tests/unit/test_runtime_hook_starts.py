"""The hook in every way that an interpreter starts, or another hook gets in between: real processes, tiny libraries."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import zipapp
from pathlib import Path

import pytest

from tests.support.fake_torch import PYTHON, hooked_site
from tests.unit.test_runtime_hook import ON_BUNDLE, STATE, STOCK, state

# Run by a child process; prints what STATE prints.
CHILD = "def child():\n" + "".join(f"    {line}\n" for line in STATE.strip().splitlines())


def facts(done):
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("options", ["-I", "-E", "-s", "-B", "-O", "-u", "-P" if sys.version_info >= (3, 11) else "-b"])
def test_options_of_the_interpreter_must_not_matter(tmp_path, options):
    assert state(hooked_site(tmp_path), options=[options]) == ON_BUNDLE


def test_interpreter_without_site_must_be_without_hook_and_torch(tmp_path):
    """`python -S` processes no .pth file; where the folder is put on the path by hand, torch is the stock one."""
    site = hooked_site(tmp_path)
    assert "No module named 'torch'" in site.run(STATE, options=["-S"]).stderr
    by_hand = f"import sys; sys.path.append({str(site.root)!r})\n"
    assert state(site, before=by_hand, options=["-S"]) == STOCK
    expected = {**ON_BUNDLE}
    assert state(site, before=by_hand + "import torch_fl\n", options=["-S"]) == expected


def test_folder_on_pythonpath_must_be_without_the_hook(tmp_path):
    """As after `pip install --target`: Python processes .pth files only of its own site directories."""
    site = hooked_site(tmp_path)
    site.python = None
    for first, expected in (("", STOCK), ("import torch_fl\n", ON_BUNDLE)):
        assert state(site, before=f"import sys; sys.path.insert(1, '/site-packages/')\n{first}") == expected


def test_start_without_torch_must_load_nothing_but_the_hook(tmp_path):
    site = hooked_site(tmp_path)
    names = "import sys; print(sorted(sys.modules))"
    with_hook = set(json.loads(site.run(names).stdout.replace("'", '"')))
    (site.root / "torch_fl.pth").unlink()
    without = set(json.loads(site.run(names).stdout.replace("'", '"')))
    assert with_hook - without == {"torch_fl_boot", "torch_fl_boot.hook"}


def test_second_pass_over_the_pth_files_must_add_no_second_hook(tmp_path):
    site = hooked_site(tmp_path)
    again = f"import site, sys; site.addsitedir({str(site.root)!r}); del sys.modules['torch_fl_boot.hook']\n"
    again += f"site.addsitedir({str(site.root)!r})\n"
    count = again + "print([type(finder).__name__ for finder in sys.meta_path].count('TorchFinder'))"
    assert site.run(count).stdout == "1\n"
    assert state(site, before=again) == ON_BUNDLE


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("parent", ["", "import torch\n", "import torch_fl\n"], ids=["bare", "torch", "torch_fl"])
def test_children_must_run_on_the_bundle(tmp_path, method, parent):
    site = hooked_site(tmp_path)
    script = tmp_path / "main.py"
    start = f"import multiprocessing\n    context = multiprocessing.get_context({method!r})\n"
    start += "    process = context.Process(target=child); process.start(); process.join()\n"
    start += "    assert process.exitcode == 0\n"
    script.write_text(f"{parent}{CHILD}if __name__ == '__main__':\n    {start}")
    assert facts(site.start(script)) == ON_BUNDLE


def test_child_with_an_empty_environment_must_run_on_the_bundle(tmp_path):
    site = hooked_site(tmp_path)
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STATE!r}], env={{}}, check=True)"
    assert facts(site.run(code)) == ON_BUNDLE


@pytest.mark.parametrize("kind", ["script", "module", "zipapp", "runpy", "exec", "console", "startup-file"])
def test_program_must_run_on_the_bundle_however_it_is_started(tmp_path, kind):
    site = hooked_site(tmp_path)
    program = tmp_path / "program"
    program.mkdir()
    (program / "__main__.py").write_text(STATE)
    zipapp.create_archive(program, tmp_path / "program.pyz")
    starts = {
        "script": [program / "__main__.py"],
        "module": ["-m", "program"],
        "zipapp": [tmp_path / "program.pyz"],
        "runpy": ["-c", f"import runpy; runpy.run_path({str(program)!r})"],
        "exec": ["-c", f"exec({STATE!r}, {{}})"],
        "console": ["-c", f"import code; code.InteractiveInterpreter().runcode(compile({STATE!r}, '<cell>', 'exec'))"],
        "startup-file": ["-c", "pass"],
    }
    if kind == "startup-file":
        (site.root / "zz_starts_torch.pth").write_text("import sitecustomize_torch\n")
        (site.root / "sitecustomize_torch.py").write_text(STATE)
    command = [str(site.python), *map(str, starts[kind])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert facts(done) == ON_BUNDLE


def test_torch_that_another_pth_file_imports_first_must_be_the_stock_one(tmp_path):
    """Files are processed in the order of their names: what comes before torch_fl.pth comes before the hook."""
    site = hooked_site(tmp_path)
    (site.root / "a_starts_torch.pth").write_text("import torch\n")
    assert state(site) == STOCK


def test_importtime_must_work(tmp_path):
    done = hooked_site(tmp_path).run(STATE, options=["-X", "importtime"])
    assert json.loads(done.stdout) == ON_BUNDLE
    assert " torch_fl_boot.hook\n" in done.stderr


def test_threads_that_import_at_once_must_all_get_the_bundle(tmp_path):
    code = """
import threading
barrier, errors = threading.Barrier(12), []
def work(name):
    barrier.wait()
    try:
        __import__(name)
    except BaseException as err:
        errors.append(err)
threads = [threading.Thread(target=work, args=(("torch", "torch_fl")[number % 2],)) for number in range(12)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert not errors, errors
"""
    assert state(hooked_site(tmp_path), before=code) == ON_BUNDLE


WRAPPER = """
import importlib.util, sys
class Hook:  # as wrapt, import profilers and the like do it: ask everybody again, then wrap the loader
    busy = False
    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.busy: return None
        self.busy = True
        try: spec = importlib.util.find_spec(name)
        finally: self.busy = False
        real = spec.loader
        class Loader:
            def create_module(self, spec): return real.create_module(spec)
            def exec_module(self, module): real.exec_module(module)
        spec.loader = Loader()
        return spec
"""
SHARED = """
import importlib.machinery, sys
class Shared:  # one loader for all modules, as zipimport has it
    def create_module(self, spec): return None
    def exec_module(self, module):
        importlib.machinery.SourceFileLoader(module.__name__, module.__file__).exec_module(module)
class Finder:
    loader = Shared()
    def find_spec(self, name, path=None, target=None):
        if name not in ("torch", "antigravity"): return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        spec.loader = self.loader
        return spec
sys.meta_path.insert(1, Finder())
import importlib.util, types
importlib.util.find_spec("torch"), importlib.util.find_spec("torch")
sys.modules["webbrowser"] = types.SimpleNamespace(open=lambda url: None)
import antigravity
assert not [line for line in open("/proc/self/maps") if "/lib_fake/" in line]
"""
LAZY = """
import importlib.util, sys
spec = importlib.util.find_spec("torch")
spec.loader = importlib.util.LazyLoader(spec.loader)
module = importlib.util.module_from_spec(spec)
sys.modules["torch"] = module
spec.loader.exec_module(module)
assert not [line for line in open("/proc/self/maps") if "/lib_fake/" in line]
module.__version__
"""


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(WRAPPER + "sys.meta_path.insert(0, Hook())\n", id="before-ours"),
        pytest.param(WRAPPER + "sys.meta_path.insert(1, Hook())\n", id="after-ours"),
        pytest.param(SHARED, id="one-loader-for-all"),
        pytest.param(LAZY, id="lazy-loader"),
    ],
)
def test_other_import_hooks_must_not_be_in_the_way(tmp_path, before):
    assert state(hooked_site(tmp_path), before=before) == ON_BUNDLE


def test_torch_without_source_must_run_on_the_bundle(tmp_path):
    site = hooked_site(tmp_path)
    site.run("import compileall; compileall.compile_dir('site-packages/torch', legacy=True, quiet=1)")
    for source in (site.root / "torch").glob("*.py"):
        if source.name != "version.py":
            source.unlink()
    assert state(site) == ON_BUNDLE


def test_sub_interpreter_must_do_as_the_main_one(tmp_path):
    """Torch itself supports only one interpreter per process; the hook sees what is mapped, and adds nothing."""
    name = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
    legacy = "isolated=False" if sys.version_info < (3, 13) else "'legacy'"
    code = f"""
import torch, {name} as interpreters, ctypes
number = interpreters.create({legacy})
interpreters.run_string(number, '''import sys
assert [type(finder).__name__ for finder in sys.meta_path].count("TorchFinder") == 1
''' + {STATE!r})
"""
    assert facts(hooked_site(tmp_path).run(code)) == ON_BUNDLE


EMBEDDING = """
#include <Python.h>
int main(int argc, char **argv) {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  PyConfig_SetBytesString(&config, &config.program_name, argv[1]);
  PyStatus status = Py_InitializeFromConfig(&config);
  if (PyStatus_Exception(status)) return 70;
  int failed = PyRun_SimpleString(argv[2]);
  return Py_FinalizeEx() < 0 || failed;
}
"""


@pytest.fixture(scope="module")
def embedding_program(tmp_path_factory):
    """A C program that embeds this Python, linked with its shared or its static library."""
    gcc = shutil.which("gcc")
    settings = sysconfig.get_config_vars()
    library = Path(settings["LIBDIR"], settings["LDLIBRARY"])
    static = Path(settings["LIBPL"], settings["LIBRARY"])
    found = next((path for path in (library, static) if path.exists()), None)
    if gcc is None or found is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("needs gcc, and the headers and the library of this Python")
    folder = tmp_path_factory.mktemp("embedding")
    (folder / "main.c").write_text(EMBEDDING)
    extra = [*settings["LIBS"].split(), *settings["SYSLIBS"].split(), "-lm", "-ldl", "-lpthread", "-Wl,-export-dynamic"]
    command = [gcc, folder / "main.c", f"-I{sysconfig.get_path('include')}", found, *extra]
    subprocess.run([*command, f"-Wl,-rpath,{found.parent}", "-o", folder / "program"], check=True)
    return folder / "program"


def test_program_that_embeds_python_must_run_on_the_bundle(tmp_path, embedding_program):
    site = hooked_site(tmp_path)
    command = [embedding_program, site.python, STATE]
    assert facts(subprocess.run(command, capture_output=True, text=True, check=False)) == ON_BUNDLE


def test_environment_that_was_moved_must_keep_its_hook(tmp_path):
    site = hooked_site(tmp_path)
    (tmp_path / "env").rename(tmp_path / "moved")
    site.root, site.python = tmp_path / f"moved/lib/python{PYTHON}/site-packages", tmp_path / "moved/bin/python"
    # The SDK's folder stands in the libraries' RUNPATH by its path.
    (tmp_path / "env").symlink_to("moved")
    assert state(site) == ON_BUNDLE

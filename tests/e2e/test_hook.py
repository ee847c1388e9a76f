"""The table of docs/runtime.md: what a process runs on, by strategy, order of imports and kind of process."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow

# The parent, a spawned child that imports by itself, and a worker of torch.compile, as inductor starts it.
PROGRAM = '''
import json, pathlib
import {first}

def where(maps):
    """What libc10.so comes from."""
    paths = {{line.split()[-1] for line in maps.splitlines() if line.rstrip().endswith("/libc10.so")}}
    owners = [path.split("/site-packages/")[1].split("/")[0] for path in paths]
    return [{{"torch_fl": "bundle", "torch": "stock"}}[owner] for owner in owners]

def own_maps():
    return pathlib.Path("/proc/self/maps").read_text()

def child(queue):
    import {first}
    queue.put(where(own_maps()))

def spawned():
    import multiprocessing
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    answer = queue.get()
    process.join()
    assert process.exitcode == 0
    return answer

def compiling():
    from torch._inductor.compile_worker.subproc_pool import SubprocPool
    pool = SubprocPool(1)
    try:
        return where(pool.submit(pathlib.Path("/proc/self/maps").read_text).result())
    finally:
        pool.shutdown()

if __name__ == "__main__":
    try:
        import torch_fl, torch
        said = None
        total = float((torch.ones(3, device="flagos") * 2).sum().cpu())
    except ImportError as err:
        said, total = type(err).__name__, 0.0
    print(json.dumps([where(own_maps()), spawned(), compiling(), said, total]))
'''
BUNDLE, STOCK = ["bundle"], ["stock"]
HOOK_OFF = {"FLAGOS_HOOK": "0"}
ORDERS = ("torch", "torch_fl")


def run_matrix(site, folder, first, **variables):
    """Return where parent, child and worker run, what the import of the plugin said, and a sum on the device."""
    script = folder / "program.py"
    script.write_text(PROGRAM.format(first=first))
    result = site.start(script, variables=variables)
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out.splitlines()[-1])


@pytest.mark.parametrize("first", ORDERS)
def test_with_the_hook_every_process_must_run_on_the_bundle(installed, tmp_path, first):
    assert run_matrix(installed("metax"), tmp_path, first) == [BUNDLE, BUNDLE, BUNDLE, None, 6.0]


def test_preload_alone_must_serve_the_processes_that_import_the_plugin_first(installed, tmp_path):
    found = run_matrix(installed("metax"), tmp_path, "torch_fl", **HOOK_OFF)
    assert found == [BUNDLE, BUNDLE, STOCK, None, 6.0]


def test_preload_alone_must_refuse_a_torch_that_came_first(installed, tmp_path):
    found = run_matrix(installed("metax"), tmp_path, "torch", **HOOK_OFF)
    assert found == [STOCK, STOCK, STOCK, "ImportOrderError", 0.0]


@pytest.fixture
def relinked(installed):
    site = installed("metax")
    done = site.start("-m", "torch_fl", "relink")
    assert done.code == 0, done.err
    yield site
    done = site.start("-m", "torch_fl", "restore")
    assert done.code == 0, done.err


@pytest.mark.parametrize("variables", [HOOK_OFF, {}], ids=["hook-off", "hook-on"])
@pytest.mark.parametrize("first", ORDERS)
def test_relinked_torch_must_run_on_the_bundle_in_every_process(relinked, tmp_path, first, variables):
    assert run_matrix(relinked, tmp_path, first, **variables) == [BUNDLE, BUNDLE, BUNDLE, None, 6.0]


EXTENSION = """
import {first}
import torch
from torch.utils.cpp_extension import load_inline
source = "torch::Tensor twice(torch::Tensor x) {{ return x + x; }}"
module = load_inline("twice", source, functions=["twice"], build_directory={folder!r})
print(module.twice(torch.ones(3)).tolist())
"""


@pytest.mark.parametrize(("first", "variables"), [("torch", {}), ("torch_fl", HOOK_OFF)], ids=["hook", "preload"])
def test_extension_built_against_the_running_torch_must_compile_link_and_load(installed, tmp_path, first, variables):
    result = installed("metax").run(EXTENSION.format(first=first, folder=str(tmp_path)), variables=variables)
    assert result.code == 0, result.err
    assert result.out.endswith("[2.0, 2.0, 2.0]\n")


RANKS = """
import json, pathlib, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(2) * (dist.get_rank() + 1)
dist.all_reduce(value)
bundled = [line for line in open("/proc/self/maps") if "/torch_fl/lib_" in line and "libc10.so" in line]
answer = [value.tolist(), bool(bundled), torch.flagos.is_available()]
pathlib.Path(sys.argv[1], f"rank{dist.get_rank()}").write_text(json.dumps(answer))
dist.destroy_process_group()
"""


def test_ranks_of_torchrun_must_run_on_the_bundle(installed, tmp_path):
    script, answers = tmp_path / "rank.py", tmp_path / "answers"
    script.write_text(RANKS)
    answers.mkdir()
    # A file for each: torchrun starts its ranks unbuffered, and what they print at the same time mixes.
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, answers]
    result = installed("metax").start(*command, variables={"OMP_NUM_THREADS": "1"})
    assert result.code == 0, result.err
    found = {path.name: json.loads(path.read_text()) for path in answers.iterdir()}
    assert found == {f"rank{rank}": [[3.0, 3.0], True, True] for rank in range(2)}

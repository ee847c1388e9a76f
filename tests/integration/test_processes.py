"""Other processes: fork, spawn, queues, workers, and what may be sent to them."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch.multiprocessing import reductions  # noqa: F401 - what registers PyTorch's ways of sending tensors

pytestmark = pytest.mark.device

# Imported by the children as well, under every start method; the plugin comes first there too.
HELPER = """
import torch_fl, torch, os, sys
def try_(kind, value=None):
    try:
        if kind == "new":
            torch.ones(2, device="flagos")
        elif kind == "old":
            value.add(1)
        elif kind == "copy":
            value.cpu()
        elif kind == "generator":
            torch.Generator("flagos")
        elif kind == "synchronize":
            torch.accelerator.synchronize()
        elif kind == "set_device":
            torch.flagos.set_device(0)
        print("no error")
    except RuntimeError as err:
        print(err)
    sys.stdout.flush()
def on_host():
    torch.manual_seed(1)
    print(float(torch.ones(3).sum()), torch.rand(2).shape, torch.flagos.is_available(), torch.flagos._is_in_bad_fork())
    sys.stdout.flush()
def answer(questions, answers):
    answers.put(questions.get().to("flagos").add(1).cpu())
    questions.get()  # a tensor in shared memory lives as long as its sender
"""


@pytest.fixture
def with_helper(tmp_path, run_ok):
    """Run a program that can import HELPER, and return what it prints."""
    (tmp_path / "helper.py").write_text(HELPER)
    start = "import helper, torch_fl, torch, torch.multiprocessing as mp, warnings\nwarnings.simplefilter('ignore')\n"
    return lambda program: run_ok(start + program)


FORKED = """
value = torch.ones(2, device="flagos")
child = mp.get_context("fork").Process(target=helper.try_, args=("{kind}", value))
child.start(); child.join(200)
print(child.exitcode, value.tolist())
"""
WORDS = (
    "Cannot re-initialize flagos in forked subprocess. To use flagos with multiprocessing, you must use the 'spawn' "
)


@pytest.mark.parametrize("kind", ["new", "old", "copy", "generator", "synchronize"])
def test_device_in_a_forked_child_must_be_refused_as_on_cuda(with_helper, kind):
    assert with_helper(FORKED.format(kind=kind)) == f"{WORDS}start method\n0 [1.0, 1.0]\n"


def test_host_work_in_a_forked_child_must_be_fine(with_helper):
    program = (
        "torch.ones(2, device='flagos')\n"
        "child = mp.get_context('fork').Process(target=helper.on_host)\n"
        "child.start(); child.join(200); print(child.exitcode)"
    )
    assert with_helper(program) == "3.0 torch.Size([2]) True True\n0\n"


def test_child_forked_before_initialisation_must_use_the_device(with_helper):
    program = (
        "child = mp.get_context('fork').Process(target=helper.try_, args=('new',))\n"
        "child.start(); child.join(200); print(child.exitcode)"
    )
    assert with_helper(program) == "no error\n0\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_child_must_use_the_device_and_exchange_host_tensors(with_helper, method):
    program = (
        "torch.ones(2, device='flagos')\n"
        f"context = mp.get_context('{method}'); questions, answers = context.Queue(), context.Queue()\n"
        "child = context.Process(target=helper.answer, args=(questions, answers)); child.start()\n"
        "questions.put(torch.arange(3.0)); print(answers.get(timeout=200).tolist())\n"
        "questions.put(None); child.join(200); print(child.exitcode)"
    )
    assert with_helper(program) == "[1.0, 2.0, 3.0]\n0\n"


@pytest.mark.parametrize("make", [lambda t: t, torch.nn.Parameter, lambda t: t.untyped_storage()], ids=["t", "p", "s"])
def test_device_memory_must_not_be_sent_and_the_error_must_say_what_to_do(device, make):
    from multiprocessing.reduction import ForkingPickler  # noqa: PLC0415 - what queues and pipes use

    with pytest.raises(RuntimeError, match=r"flagos.*another process.*queue.put\(tensor.cpu\(\)\)"):
        ForkingPickler.dumps(make(torch.ones(2, device=device)))
    assert len(ForkingPickler.dumps(make(torch.ones(2)))) > 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_must_load_host_data_after_the_device_was_used(with_helper, method):
    program = (
        "torch.ones(2, device='flagos')\n"
        "numbers = torch.utils.data.TensorDataset(torch.arange(8.0))\n"
        "loader = torch.utils.data.DataLoader(numbers, batch_size=4, num_workers=1, pin_memory=True,\n"
        f"                                     multiprocessing_context='{method}')\n"
        "for [batch] in loader:\n"
        "    print(batch.is_pinned(), batch.to('flagos', non_blocking=True).sum().item())"
    )
    assert with_helper(program) == "True 6.0\nTrue 22.0\n"


def test_generator_must_be_pickled_with_its_device_and_place_in_the_sequence(device):
    generator = torch.Generator(device).manual_seed(5)
    torch.rand(7, device=device, generator=generator)
    for twin in (pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator)):  # noqa: S301 - written in this line
        assert twin.device == device
        assert twin.initial_seed() == 5
        expected = torch.rand(4, device=device, generator=generator.clone_state())
        assert torch.equal(torch.rand(4, device=device, generator=twin), expected)


def test_generator_must_reach_a_spawned_child_in_a_saved_file(device, with_helper, tmp_path):
    generator = torch.Generator(device).manual_seed(5)
    expected = torch.rand(3, device=device, generator=generator.clone_state()).tolist()
    (tmp_path / "generator.pickle").write_bytes(pickle.dumps(generator))
    program = (
        "import pickle\n"
        "generator = pickle.load(open('generator.pickle', 'rb'))\n"
        "print(torch.rand(3, device=generator.device, generator=generator).tolist())"
    )
    assert with_helper(program) == f"{expected}\n"


def test_module_must_be_pickled_with_its_device(device):
    layer = torch.nn.Linear(2, 2).to(device)
    file = io.BytesIO(pickle.dumps(layer))
    twin = pickle.load(file)  # noqa: S301 - written two lines above
    assert twin.weight.device == device
    assert torch.equal(twin.weight, layer.weight)

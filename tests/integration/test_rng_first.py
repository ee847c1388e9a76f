"""Random numbers: also as the first operation of a process, before anything else has initialised the device."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

FIRST = [
    pytest.param("torch.randn(4096, device='flagos')", 0.0, 1.0, id="randn"),
    pytest.param("torch.rand(4096, device='flagos')", 0.5, 0.2887, id="rand"),
    pytest.param("torch.empty(4096, device='flagos').normal_(3, 2)", 3.0, 2.0, id="normal_"),
    pytest.param("torch.randint(0, 10, (4096,), device='flagos').float()", 4.5, 2.872, id="randint"),
    pytest.param("torch.bernoulli(torch.full((4096,), 0.25, device='flagos'))", 0.25, 0.433, id="bernoulli"),
    pytest.param("torch.dropout(torch.ones(4096, device='flagos'), 0.5, True)", 1.0, 1.0, id="dropout"),
    pytest.param(
        "torch.rand(4096, device='flagos', generator=torch.Generator(device='flagos'))", 0.5, 0.2887, id="generator"
    ),
]


@pytest.mark.parametrize(("call", "mean", "deviation"), FIRST)
def test_random_operator_must_work_as_the_first_operation_of_a_process(run_ok, call, mean, deviation):
    told = run_ok(f"import torch_fl, torch\nx = {call}\nprint(x.device.type, x.mean().item(), x.std().item())")
    where, got_mean, got_deviation = told.split()
    assert where == "flagos"
    # Five standard errors of 4096 draws.
    assert abs(float(got_mean) - mean) < 5 * deviation / 64
    assert abs(float(got_deviation) - deviation) < 0.1 * max(deviation, 1)


def test_seed_set_before_the_first_operation_must_hold(run_ok):
    program = "import torch_fl, torch\ntorch.manual_seed(11)\nprint(torch.randn(4, device='flagos').tolist())"
    torch.manual_seed(11)
    assert run_ok(program) == f"{torch.randn(4, device='flagos:0').tolist()}\n"


DRAWS = [
    pytest.param(lambda d, **k: torch.randn(64, device=d, **k), id="randn"),
    pytest.param(lambda d, **k: torch.rand(64, device=d, **k), id="rand"),
    pytest.param(lambda d, **k: torch.randint(1 << 30, (64,), device=d, **k), id="randint"),
    pytest.param(lambda d, **k: torch.randperm(64, device=d, **k), id="randperm"),
    pytest.param(lambda d, **k: torch.empty(64, device=d).normal_(1, 2, **k), id="normal_"),
    pytest.param(lambda d, **k: torch.empty(64, device=d).uniform_(-1, 1, **k), id="uniform_"),
    pytest.param(lambda d, **k: torch.empty(64, device=d).exponential_(2, **k), id="exponential_"),
    pytest.param(lambda d, **k: torch.empty(64, device=d).cauchy_(0, 1, **k), id="cauchy_"),
    pytest.param(lambda d, **k: torch.empty(64, device=d).log_normal_(0, 1, **k), id="log_normal_"),
    pytest.param(lambda d, **k: torch.empty(64, device=d).geometric_(0.1, **k), id="geometric_"),
    pytest.param(lambda d, **k: torch.empty(64, device=d).bernoulli_(0.5, **k), id="bernoulli_"),
    pytest.param(lambda d, **k: torch.multinomial(torch.ones(64, device=d), 32, **k), id="multinomial"),
    pytest.param(lambda d, **k: torch.normal(torch.zeros(64, device=d), 1.0, **k), id="normal"),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_manual_seed_must_repeat_the_numbers_and_another_seed_must_not(device, draw):
    torch.manual_seed(5)
    first, second = draw(device), draw(device)
    torch.manual_seed(5)
    assert torch.equal(draw(device), first)
    assert torch.equal(draw(device), second)
    assert not torch.equal(first, second)
    torch.manual_seed(6)
    assert not torch.equal(draw(device), first)


@pytest.mark.parametrize("draw", DRAWS)
def test_user_generator_must_repeat_its_numbers_and_leave_the_default_alone(device, draw):
    torch.manual_seed(5)
    undisturbed = torch.rand(8, device=device)
    torch.manual_seed(5)
    first = draw(device, generator=torch.Generator(device=device).manual_seed(9))
    assert torch.equal(torch.rand(8, device=device), undisturbed)
    assert torch.equal(draw(device, generator=torch.Generator(device=device).manual_seed(9)), first)


def test_generator_must_know_its_device_and_seed(device):
    generator = torch.Generator(device=device)
    assert generator.device == device
    assert generator.manual_seed(77) is generator
    assert generator.initial_seed() == 77
    assert generator.seed() == generator.initial_seed()


def test_generator_state_must_survive_a_round_trip(device):
    generator = torch.Generator(device=device).manual_seed(4)
    torch.rand(10, device=device, generator=generator)
    state = generator.get_state()
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8
    expected = torch.rand(10, device=device, generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.rand(10, device=device, generator=generator), expected)
    other = torch.Generator(device=device)
    other.set_state(state)
    assert torch.equal(torch.rand(10, device=device, generator=other), expected)


def test_default_state_must_survive_a_round_trip(device):
    state = torch.flagos.get_rng_state(device)
    expected = torch.rand(10, device=device)
    torch.flagos.set_rng_state(state, device)
    assert torch.equal(torch.rand(10, device=device), expected)


def test_fork_rng_must_restore_the_default_generator(device):
    torch.manual_seed(8)
    expected = torch.rand(6, device=device)
    torch.manual_seed(8)
    with torch.random.fork_rng(devices=[device.index], device_type="flagos"):
        torch.rand(100, device=device)
    assert torch.equal(torch.rand(6, device=device), expected)


def test_generator_of_the_cpu_must_be_refused(device):
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device=device, generator=torch.Generator())


def test_generator_of_flagos_must_be_refused_by_the_cpu(device):
    with pytest.raises(RuntimeError, match=r"generator|same device"):
        torch.rand(3, generator=torch.Generator(device=device))


def test_device_seed_must_not_touch_the_cpu_generator(device):
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    torch.flagos.manual_seed(99)
    torch.rand(4, device=device)
    assert torch.equal(torch.rand(4), expected)
    assert torch.flagos.initial_seed() == 99


def test_each_device_must_have_a_generator_of_its_own(device, other_device):
    torch.flagos.manual_seed_all(3)
    expected = torch.rand(5, device=device)
    torch.flagos.manual_seed_all(3)
    torch.rand(50, device=other_device)
    assert torch.equal(torch.rand(5, device=device), expected)


def test_default_generators_must_be_one_per_device():
    generators = torch.flagos.default_generators
    assert len(generators) == torch.flagos.device_count()
    assert [generator.device.index for generator in generators] == list(range(len(generators)))
    with pytest.raises(IndexError):
        generators[len(generators)]


def test_dropout_must_scale_what_it_keeps_and_pass_the_gradient_of_the_kept(device):
    source = torch.ones(2000, device=device, requires_grad=True)
    dropped = torch.nn.functional.dropout(source, 0.25)
    dropped.sum().backward()
    kept = dropped.detach() != 0
    assert 1300 < int(kept.sum()) < 1700
    torch.testing.assert_close(dropped.detach()[kept].cpu(), torch.full((int(kept.sum()),), 1 / 0.75))
    assert torch.equal(source.grad, dropped.detach())


def test_random_numbers_must_not_depend_on_the_current_device(device, other_device):
    torch.manual_seed(21)
    expected = torch.rand(5, device=device)
    torch.manual_seed(21)
    with torch.flagos.device(other_device):
        assert torch.equal(torch.rand(5, device=device), expected)

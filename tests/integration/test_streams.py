"""Streams and events beyond the everyday: contexts, priorities, time, other libraries' streams."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device


def test_stream_context_must_nest_with_one_object_and_restore(device):
    default, side = torch.flagos.current_stream(device), torch.flagos.Stream(device)
    context = torch.flagos.stream(side)
    with context:
        with context:
            assert torch.flagos.current_stream() == side
        assert torch.flagos.current_stream() == side
    assert torch.flagos.current_stream() == default


def test_stream_context_must_restore_after_an_exception(device):
    default = torch.flagos.current_stream(device)
    with pytest.raises(ValueError, match="inside"), torch.flagos.stream(torch.flagos.Stream(device)):
        raise ValueError("inside")
    assert torch.flagos.current_stream() == default


def test_stream_context_of_none_must_change_nothing(device):
    default = torch.flagos.current_stream(device)
    with torch.flagos.stream(None):
        assert torch.flagos.current_stream() == default
    torch.flagos.set_stream(None)
    assert torch.flagos.current_stream() == default


def test_stream_context_of_another_device_must_switch_and_restore_both(device, other_device):
    default, side = torch.flagos.current_stream(other_device), torch.flagos.Stream(other_device)
    with torch.flagos.stream(side):
        assert torch.flagos.current_device() == other_device.index
        assert torch.flagos.current_stream(other_device) == side
    assert torch.flagos.current_device() == device.index
    assert torch.flagos.current_stream(other_device) == default


def test_generic_stream_must_be_a_context(device):
    stream = torch.Stream(device=device)
    with stream:
        assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream() != stream


def test_default_stream_must_be_current_at_first(device):
    assert torch.flagos.default_stream(device) == torch.flagos.current_stream(device)
    assert torch.flagos.default_stream() != torch.flagos.Stream()


@pytest.mark.parametrize("priority", [-1, 0])
def test_stream_of_any_priority_must_work(device, priority):
    stream = torch.flagos.Stream(device, priority=priority)
    with torch.flagos.stream(stream):
        value = torch.ones(8, device=device) * 2
    stream.synchronize()
    assert value.tolist() == [2] * 8


def test_equal_streams_must_be_equal_and_hash_alike(device):
    stream = torch.flagos.Stream(device)
    with torch.flagos.stream(stream):
        same = torch.flagos.current_stream()
    assert stream == same
    assert hash(stream) == hash(same)
    assert stream != torch.flagos.Stream(device)


def test_stream_of_another_library_must_be_usable(device):
    owner = torch.flagos.Stream(device)
    if not hasattr(owner, "native_handle"):
        pytest.skip(f"torch {torch.__version__} does not tell a stream's native handle")
    external = torch.flagos.ExternalStream(owner.native_handle, device)
    assert external.native_handle == owner.native_handle
    with torch.flagos.stream(external):
        value = torch.ones(8, device=device) + 1
    external.synchronize()
    owner.synchronize()
    assert value.tolist() == [2] * 8


def test_default_stream_must_be_the_external_stream_of_address_zero(device):
    assert torch.flagos.get_stream_from_external(0, device) == torch.flagos.default_stream(device)


def test_address_that_no_stream_has_must_be_refused(device):
    with pytest.raises(ValueError, match="0x7"):
        torch.flagos.ExternalStream(7, device)


def test_event_must_order_two_streams_inside_contexts(device):
    producer, consumer = torch.flagos.Stream(device), torch.flagos.Stream(device)
    event = torch.flagos.Event()
    with torch.flagos.stream(producer):
        value = torch.arange(1 << 12, device=device) * 2
        event.record()
    with torch.flagos.stream(consumer):
        event.wait()
        total = value.sum()
    consumer.synchronize()
    assert total.item() == (1 << 12) * ((1 << 12) - 1)


def test_event_of_a_stream_must_be_done_once_the_stream_is(device):
    stream = torch.flagos.Stream(device)
    event = stream.record_event()
    stream.wait_event(event)
    stream.synchronize()
    assert event.query()


def test_event_must_be_usable_again(device):
    event = torch.flagos.Event()
    for _ in range(3):
        event.record()
        event.synchronize()
        assert event.query()
    assert torch.ones(1, device=device).item() == 1


def test_elapsed_time_of_events_without_clock_must_be_refused(device):
    first, second = torch.Event(device=device), torch.Event(device=device)
    first.record()
    second.record()
    second.synchronize()
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)timing"):
        first.elapsed_time(second)


def test_elapsed_time_must_be_of_either_sign(device):
    first, second = torch.Event(device=device, enable_timing=True), torch.Event(device=device, enable_timing=True)
    first.record()
    torch.ones(64, 64, device=device).exp_()
    second.record()
    torch.flagos.synchronize(device)
    assert first.elapsed_time(second) >= 0 >= second.elapsed_time(first), "milliseconds"


def test_accelerator_must_give_and_set_streams(device):
    before, stream = torch.accelerator.current_stream(device), torch.Stream(device=device)
    torch.accelerator.set_stream(stream)
    try:
        assert torch.flagos.current_stream() == stream
    finally:
        torch.accelerator.set_stream(before)
    torch.accelerator.synchronize(device)
    assert torch.flagos.current_stream() == before


def test_accelerator_device_context_must_switch_and_restore(device, other_device):
    with torch.accelerator.device_index(other_device.index):
        assert torch.flagos.current_device() == other_device.index
    assert torch.flagos.current_device() == device.index

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rooftune.device import discovery
from rooftune.device.discovery import FoundDevice, Survey, choose_device, how_to_get_a_runtime, list_devices
from rooftune.device.profile import DeviceProfile
from rooftune.errors import DeviceError


def device(index: int, name: str, platform: str = "P", kind: str = "cpu", **facts: bool) -> FoundDevice:
    profile = DeviceProfile(name, platform, kind=kind)
    return FoundDevice(index, platform, name, kind, "system", [], profile, **facts)  # type: ignore[arg-type]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices that are not here, already in order of preference."""
    cards = (device(0, "Card One", "Maker", "gpu"), device(1, "Card Two", "Maker", "gpu"))
    devices = (*cards, device(2, "Chip", "PoCL"))
    monkeypatch.setattr(discovery, "_surveyed", Survey(devices, (), ()))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("wanted", "index"), [(None, 0), ("", 0), (1, 1), ("2", 2), ("two", 1), ("pocl", 2), (" CHIP ", 2)]
)
def test_a_device_is_chosen_by_index_or_by_part_of_a_name(wanted: str | int | None, index: int) -> None:
    assert choose_device(wanted).index == index


@pytest.mark.usefixtures("machine")
def test_the_environment_variable_chooses_when_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFTUNE_DEVICE", "chip")
    assert choose_device().index == 2
    assert choose_device("two").index == 1


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("wanted", "said"), [("card", "several"), ("nothing", "no OpenCL device"), ("7", "no OpenCL")]
)
def test_none_or_several_matches_are_an_error_that_lists_them(wanted: str, said: str) -> None:
    with pytest.raises(DeviceError, match=said) as raised:
        choose_device(wanted)
    assert "Card One" in str(raised.value)
    assert raised.value.exit_code == 3


def test_without_any_device_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_surveyed", Survey((), ("platform X shows no device.",), ()))
    with pytest.raises(DeviceError, match="platform X shows no device") as raised:
        choose_device()
    assert raised.value.hint == how_to_get_a_runtime()
    assert "driver" in raised.value.hint


def test_a_device_that_cannot_compile_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = (device(0, "good"), device(1, "bad", usable=False))
    monkeypatch.setattr(discovery, "_surveyed", Survey(devices, (), ()))
    with pytest.raises(DeviceError):
        choose_device("bad")


def test_order_is_gpu_accelerator_cpu_and_defective_last() -> None:
    devices = [
        device(0, "d", defective=True),
        device(0, "c"),
        device(0, "a", kind="accelerator"),
        device(0, "g", kind="gpu"),
        device(0, "u", kind="gpu", usable=False),
    ]
    assert [d.name for d in sorted(devices, key=discovery._preference)] == ["g", "a", "c", "d", "u"]


def test_real_devices_have_consecutive_indices_and_origins() -> None:
    found = list_devices()
    assert [d.index for d in found] == list(range(len(found)))
    assert all(d.origin != "unknown" and d.profile.compute_units >= 1 for d in found)


PRETEND = """
import json
from rooftune.device.discovery import list_devices
found = [d for d in list_devices() if "Portable" in d.platform]
print(json.dumps([[d.name, d.profile.id, d.profile.memory_bytes] for d in found]))
"""


def pretend(monkeypatch: pytest.MonkeyPatch, devices: str, **more: str) -> list:
    system = Path("/etc/OpenCL/vendors/pocl.icd")
    if not system.exists():
        pytest.skip("needs the system's PoCL")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(system))
    monkeypatch.setenv("POCL_DEVICES", devices)
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", PRETEND], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_equal_devices_share_an_id_and_two_different_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    equal = pretend(monkeypatch, "pthread pthread")
    first, second = equal[:2]
    assert first[1] == second[1]
    names = [row[1] for row in pretend(monkeypatch, "pthread basic")]
    assert len(set(names)) >= 2


def test_a_cpus_memory_is_not_in_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pretend(monkeypatch, "pthread")
    small = pretend(monkeypatch, "pthread", POCL_MEMORY_LIMIT="1")
    assert whole[0][2] != small[0][2]
    assert whole[0][1] == small[0][1]

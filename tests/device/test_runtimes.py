"""Runtimes from pip made visible, in fresh processes: the loader reads its vendors once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from rooftune.device import places
from rooftune.device.runtimes import Vendor, _is_placeholder, _write_vendor_folder

SURVEY = """
import json, os, sys
from rooftune.device.discovery import survey, choose_device
found = survey()
print(json.dumps({
    "devices": [[d.platform, d.origin, d.defective, d.usable] for d in found.devices],
    "problems": found.problems, "notes": found.notes, "vendors": os.environ.get("OCL_ICD_VENDORS"),
}))
"""
KERNEL = """
import numpy as np
from rooftune.device.client import Client
client = Client()
kernel = client.kernel("__kernel void k(__global int *p) { p[0] = 7; }", "k")
buffer = client.upload(np.zeros(1, np.int32))
kernel.set_args(buffer)
client.enqueue(kernel, (1,), (1,))
print(np.frombuffer(client.download(buffer, 4), np.int32)[0])
"""
INTEL = next((Path(sys.prefix) / "lib").glob("libintelocl.so"), None)
needs_intel = pytest.mark.skipif(INTEL is None, reason="needs intel-opencl-rt from pip")


def run(code: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ)
    env.pop("OCL_ICD_VENDORS", None)
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)


def survey_in(**changes: str | None) -> dict:
    done = run(SURVEY, **changes)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_intel
def test_a_runtime_from_pip_is_found_without_any_system_vendor(tmp_path: Path) -> None:
    found = survey_in(OCL_ICD_VENDORS=str(tmp_path))
    assert ["Intel(R) OpenCL", "pip: intel-opencl-rt", False, True] in found["devices"]
    assert found["devices"][0][0] == "Intel(R) OpenCL"


@needs_intel
def test_vendors_that_were_there_stay_visible(tmp_path: Path) -> None:
    system = Path("/etc/OpenCL/vendors/pocl.icd")
    if not system.exists():
        pytest.skip("needs the system's PoCL")
    found = survey_in()
    origins = {origin for _, origin, _, _ in found["devices"]}
    assert {"pip: intel-opencl-rt", f"system: {system}"} <= origins


@needs_intel
def test_a_child_process_inherits_the_vendors_and_their_origins(tmp_path: Path) -> None:
    found = survey_in()
    assert survey_in(OCL_ICD_VENDORS=found["vendors"])["devices"] == found["devices"]


@needs_intel
def test_the_wheels_own_icd_with_a_placeholder_path_does_no_harm() -> None:
    vendors = Path(sys.prefix) / "etc" / "OpenCL" / "vendors"
    assert vendors.is_dir()
    found = survey_in(OCL_ICD_VENDORS=str(vendors))
    assert "Intel(R) OpenCL" in [platform for platform, *_ in found["devices"]]


def test_a_single_vendor_that_was_asked_for_is_respected() -> None:
    system = Path("/etc/OpenCL/vendors/pocl.icd")
    if not system.exists():
        pytest.skip("needs the system's PoCL")
    found = survey_in(OCL_ICD_VENDORS=str(system))
    assert found["vendors"] == str(system)
    assert "Intel(R) OpenCL" not in [platform for platform, *_ in found["devices"]]


@pytest.mark.skipif(find_spec("pocl_binary_distribution") is None, reason="needs pocl-binary-distribution")
def test_the_defective_runtime_is_shown_but_never_preferred() -> None:
    devices = survey_in()["devices"]
    defective = [d for d in devices if d[1] == "pip: pocl-binary-distribution"]
    assert all(d[2] for d in defective) and defective
    if any(not d[2] for d in devices):
        assert not devices[0][2]


@pytest.mark.parametrize("home", [None, "/proc/nowhere"])
def test_kernels_run_without_a_writable_home(home: str | None) -> None:
    done = run(KERNEL, HOME=home, XDG_CACHE_HOME=home and home + "/cache", POCL_CACHE_DIR=None)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "7\n"


def test_an_unwritable_pocl_cache_does_not_hide_devices() -> None:
    before = survey_in(POCL_CACHE_DIR=None)
    found = survey_in(POCL_CACHE_DIR="/proc/nowhere")
    assert found["devices"] == before["devices"]
    assert any("POCL_CACHE_DIR" in note for note in found["notes"])


def test_a_vendor_folder_is_written_once_and_leaves_placeholders_out() -> None:
    vendors = [
        Vendor("libfirst.so", "system: a.icd", "a.icd"),
        Vendor("/nowhere/libsecond.so", "system: b.icd", "b.icd"),
    ]
    assert _is_placeholder(vendors[1].library)
    folder = _write_vendor_folder(vendors)
    assert _write_vendor_folder(vendors) == folder
    assert [path.read_text() for path in sorted(folder.glob("*.icd"))] == ["libfirst.so\n"]


def test_a_cache_folder_exists_even_where_the_users_is_not_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    folder = places.cache_folder("binaries")
    assert places.writable(folder)
    assert not str(folder).startswith("/proc")


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_a_folder_on_a_full_disk_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    assert places.writable(tmp_path, places.ROOM_BYTES)
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert places.writable(tmp_path) and not places.writable(tmp_path, places.ROOM_BYTES)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1"), ({"POCL_AFFINITY": "0"}, "0"), ({"POCL_MAX_PTHREAD_COUNT": "1"}, None)],
)
def test_pocls_threads_keep_to_their_cores_unless_they_are_few_or_told_otherwise(
    given: dict[str, str], expected: str | None
) -> None:
    names = ("POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")
    code = "import os, rooftune.device.opencl; print(os.environ.get('POCL_AFFINITY'))"
    if os.sched_getaffinity(0) != set(range(os.cpu_count() or 0)):
        expected = given.get("POCL_AFFINITY")
    done = run(code, **{name: given.get(name) for name in names})
    assert done.stdout.strip() == str(expected), done.stderr


def test_a_process_kept_to_some_cores_leaves_pocls_threads_alone() -> None:
    code = """
import os
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
import rooftune.device.opencl
print(os.environ.get("POCL_AFFINITY"))
"""
    expected = "None" if max(os.sched_getaffinity(0)) else "1"
    assert run(code, POCL_AFFINITY=None).stdout.strip() == expected

"""OpenCL runtimes that pip installed, and drivers nobody registered, made visible to pyopencl.

Must run before the first OpenCL call of the process: the ICD loader reads its list of vendors once.
Only environment variables and a folder of our own are written; vendors already there stay visible.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .places import HALF_MADE, cache_folder, drop_half_made, give_runtimes_writable_caches

SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
INTEL_LIBRARY = "libintelocl.so"
INTEL_NEEDS = ("libintlc.so.5", "libirng.so", "libsvml.so", "libimf.so")
NVIDIA_LIBRARY = "libnvidia-opencl.so.1"
POCL_THREAD_SETTINGS = ("POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")
DEFECTIVE_POCL = (
    "generates slow code (no wide vectors, no fused multiply-add), and its compiler stops the whole process "
    "on some kernels; any other OpenCL runtime is better"
)


@dataclass(frozen=True)
class Vendor:
    """One line of an .icd file: the library it names and where that came from."""

    library: str
    origin: str
    file: str


@dataclass(frozen=True)
class Runtimes:
    """What `prepare` found: vendors the loader will see, and what is wrong, in sentences."""

    vendors: tuple[Vendor, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def origin_of(self, library: str) -> str:
        """Where the driver library of a platform came from, as words for people."""
        name = _real(library)
        for vendor in self.vendors:
            same_file = _real(vendor.library) == name
            if same_file or os.path.basename(vendor.library) == os.path.basename(library):
                return vendor.origin
        if f"{os.sep}pyopencl{os.sep}.libs{os.sep}" in name:
            return "pip: pocl-binary-distribution"
        return f"library {library}" if library else "unknown"


_prepared: Runtimes | None = None
_guard = threading.Lock()


def prepare() -> Runtimes:
    """Make runtimes visible, once per process; later calls return what the first one found."""
    global _prepared
    with _guard:
        if _prepared is None:
            _prepared = _prepare() if sys.platform.startswith("linux") else Runtimes()
    return _prepared


def _prepare() -> Runtimes:
    notes = give_runtimes_writable_caches()
    _spread_pocl_threads()
    problems: list[str] = []
    present = _visible_vendors()
    added: list[Vendor] = []
    for find in (_intel_from_pip, _unregistered_nvidia):
        vendor = find(present, problems)
        if vendor is not None:
            added.append(vendor)
    if added and not _single_vendor_asked():
        os.environ["OCL_ICD_VENDORS"] = str(_write_vendor_folder([*added, *present]))
        present = [*added, *present]
    return Runtimes(tuple(present), tuple(problems), tuple(notes))


def _single_vendor_asked() -> bool:
    """OCL_ICD_VENDORS naming one file or library, not a folder, is a choice to be respected."""
    asked = os.environ.get("OCL_ICD_VENDORS", "")
    return bool(asked) and not Path(asked).is_dir() and (asked.endswith(".icd") or ".so" in asked)


def _spread_pocl_threads() -> None:
    """Has PoCL keep each of its threads on a core of its own, unless something else was asked for.

    Its threads sleep between launches and wake together. Linux then often leaves two on one core, for
    as long as launches last about a millisecond, and half of the machine idle.
    """
    asked = any(name in os.environ for name in POCL_THREAD_SETTINGS)
    if not asked and os.sched_getaffinity(0) == set(range(os.cpu_count() or 0)):
        os.environ["POCL_AFFINITY"] = "1"


def _visible_vendors() -> list[Vendor]:
    """What the loader would read now, and a conda environment's own folder."""
    asked = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
    if asked and not Path(asked).is_dir():
        return [Vendor(line, f"OCL_ICD_VENDORS={asked}", asked) for line in _lines_of(asked)]
    vendors = _folder_vendors(Path(asked) if asked else SYSTEM_VENDORS)
    if (Path(sys.prefix) / "conda-meta").is_dir():
        vendors += _folder_vendors(Path(sys.prefix) / "etc" / "OpenCL" / "vendors")
    return vendors


def _folder_vendors(folder: Path) -> list[Vendor]:
    if folder.name.startswith("rooftune-icd-"):  # inherited from a parent process
        return [_inherited(path) for path in sorted(folder.glob("*.icd"))]
    try:
        files = sorted(folder.glob("*.icd"))
    except OSError:
        return []
    return [Vendor(line, f"system: {path}", str(path)) for path in files for line in _icd_lines(path)]


def _inherited(path: Path) -> Vendor:
    library = next(iter(_icd_lines(path)), "")
    with suppress(OSError):
        return Vendor(library, path.with_suffix(".origin").read_text().strip(), str(path))
    return Vendor(library, f"system: {path}", str(path))


def _lines_of(asked: str) -> list[str]:
    return _icd_lines(Path(asked)) if asked.endswith(".icd") else ([asked] if ".so" in asked else [])


def _icd_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines()[:1] if line.strip()]


def _names(vendors: list[Vendor], library: str) -> bool:
    """Whether a vendor that can be loaded already names this library."""
    stem = library.split(".so")[0]
    real = (v.library for v in vendors if not _is_placeholder(v.library))
    return any(os.path.basename(name).startswith(stem) for name in real)


def _is_placeholder(library: str) -> bool:
    return os.path.isabs(library) and not os.path.exists(library)


def _pip_folders() -> list[Path]:
    """Where wheels put shared libraries: the data folder's lib, of the environment and of the user."""
    schemes = ["posix_prefix", "posix_user", "posix_local"]
    roots = [Path(sys.prefix)]
    for scheme in schemes:
        if scheme in sysconfig.get_scheme_names():
            with suppress(KeyError):
                roots.append(Path(sysconfig.get_path("data", scheme)))
    return list(dict.fromkeys(root / "lib" for root in roots))


def _intel_from_pip(present: list[Vendor], problems: list[str]) -> Vendor | None:
    folder = next((f for f in _pip_folders() if (f / INTEL_LIBRARY).exists()), None)
    if folder is None:
        return None
    library = str(folder / INTEL_LIBRARY)
    registered = any(_real(v.library) == _real(library) for v in present)
    if not registered and _names(present, INTEL_LIBRARY):
        return None  # two copies of this runtime in one process would disturb one another
    for name in INTEL_NEEDS:
        try:
            ctypes.CDLL(_find(name, folder), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            problems.append(
                f"intel-opencl-rt is installed in {folder} but {name} cannot be loaded ({error}); "
                "pip install intel-cmplr-lib-rt brings it"
            )
            return None
    return None if registered else Vendor(library, "pip: intel-opencl-rt", "")


def _find(name: str, beside: Path) -> str:
    for folder in (beside, *_pip_folders()):
        if (folder / name).exists():
            return str(folder / name)
    return name


def _unregistered_nvidia(present: list[Vendor], problems: list[str]) -> Vendor | None:
    if _names(present, NVIDIA_LIBRARY):
        return None
    try:
        ctypes.CDLL(NVIDIA_LIBRARY)
    except OSError as error:
        if os.path.exists("/dev/nvidiactl"):
            problems.append(
                f"an NVIDIA GPU is present but {NVIDIA_LIBRARY} cannot be loaded ({error}); the driver's "
                "OpenCL package is missing (Debian: nvidia-opencl-icd; Ubuntu: libnvidia-compute-<version>; "
                "in a container, NVIDIA_DRIVER_CAPABILITIES must contain compute)"
            )
        return None
    return Vendor(NVIDIA_LIBRARY, "NVIDIA driver, not registered with the system", "")


def _write_vendor_folder(vendors: list[Vendor]) -> Path:
    """A folder of .icd files, one a vendor, named by its content: written once, never changed."""
    unique = {v.library: v for v in reversed(vendors) if v.library and not _is_placeholder(v.library)}
    ordered = sorted(unique.values(), key=lambda v: v.library)
    digest = hashlib.sha256("\n".join(f"{v.library}\t{v.origin}" for v in ordered).encode()).hexdigest()[:16]
    parent = cache_folder("vendors")
    folder = parent / f"rooftune-icd-{digest}"
    if folder.is_dir():
        return folder
    drop_half_made(parent)
    fresh = Path(tempfile.mkdtemp(dir=parent, prefix=HALF_MADE))
    for index, vendor in enumerate(ordered):
        (fresh / f"{index:02}.icd").write_text(vendor.library + "\n")
        (fresh / f"{index:02}.origin").write_text(vendor.origin + "\n")
    try:
        os.replace(fresh, folder)
    except OSError:  # another process made it in the meantime
        if not folder.is_dir():
            return fresh
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _real(library: str) -> str:
    """The file behind links; a bare name is left as it is where the current folder was deleted."""
    try:
        return os.path.realpath(library)
    except OSError:
        return library

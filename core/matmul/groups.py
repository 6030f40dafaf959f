"""When each group of candidates has its turn, and the priorities inside the groups.

Every function here takes a key and gives (priority, reason). Higher is tried earlier; NEVER leaves
the candidates out. A device's properties come in as a DeviceProfile, written by hand if need be.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..device.profile import DeviceProfile
from ..tuning.tunable import TuneGroup
from .key import Kind, Layout, MatmulAutotuneKey, Scale

Key = MatmulAutotuneKey
Rank = tuple[int, str]
Rule = Callable[[Key], Rank]

NEVER = -1
DEMOTED = 0

_TMA_STRIDE_FACTOR = 4
_TMA_MAX_RATIO = 4
_DEEP_RATIO = 8
_THIN = 64
_DEEP_K = 1024
_LITTLE_WORK = 1 << 30
_WORTH_SLICES = 256
_LONG_VECTOR = 1 << 14


# -- groups ---------------------------------------------------------------------------------------


def accelerated(key: Key) -> Rank:
    """Matrix instructions pay off for general products, most of all for large ones."""
    if key.analysis.kind is not Kind.GENERAL:
        return 1, f"kind {key.analysis.kind.value}, not General"
    if key.analysis.scale_global is Scale.LARGE:
        return 3, "General and Large"
    return 2, f"General, {key.analysis.scale_global.value}"


def unit(key: Key) -> Rank:
    """Register tiles suit small and degenerate products.

    With little work or a deep k they stand beside accelerated.
    """
    if key.analysis.kind is not Kind.GENERAL:
        own = 2, f"kind {key.analysis.kind.value}, not General"
    elif key.analysis.scale_global is Scale.SMALL:
        own = 2, "Small"
    else:
        own = 1, f"General, {key.analysis.scale_global.value}"
    beside, _ = accelerated(key)
    if deep_k(key) and beside > own[0]:
        return beside, "deep k, beside accelerated"
    if little_work(key) and beside > own[0]:
        return beside, "little work, beside accelerated"
    return own


def tma(key: Key) -> Rank:
    """The bulk copy engine needs strides of 16 bytes, and pays off for large, compact products."""
    d = key.definition
    if min(d.lhs_stride_factor, d.rhs_stride_factor) < _TMA_STRIDE_FACTOR:
        return NEVER, "a stride or offset is not a multiple of 16 bytes"
    general_large = key.analysis.kind is Kind.GENERAL and key.analysis.scale_global is Scale.LARGE
    if general_large and max(d.m, d.n, d.k) // min(d.m, d.n, d.k) < _TMA_MAX_RATIO:
        return 3, "General, Large and compact"
    return 2, "strides allow bulk copies"


def gemv(key: Key, profile: DeviceProfile) -> Rank:
    """Matrix times vector; first choice where each row of the result reads contiguous memory.

    Long inner products too: at k = 100000 an H200 takes a third of split_k's time for them.

    On a CPU device always first choice, for inner products too: the cpu group is there as well, and with the
    matrix the other way round its kernels take up to 15 times, for an inner product 100 times as long.
    """
    d, kind = key.definition, key.analysis.kind
    if profile.is_cpu and kind in (Kind.MAT_VEC, Kind.VEC_MAT, Kind.INNER_PRODUCT):
        return 3, f"{kind.value}, beside cpu"
    if kind is Kind.MAT_VEC:
        return (2, "MatVec, lhs transposed") if _transposed(d.matrix_layout_lhs) else (3, "MatVec")
    if kind is Kind.VEC_MAT:
        return (3, "VecMat, rhs transposed") if _transposed(d.matrix_layout_rhs) else (2, "VecMat")
    if kind is Kind.INNER_PRODUCT and d.k >= _LONG_VECTOR:
        return 2, "a long InnerProduct, beside unit"
    return NEVER, f"kind {kind.value} has no vector"


def cpu(key: Key, profile: DeviceProfile) -> Rank:
    """Cache-blocked kernels, for CPU devices alone."""
    return (3, "a CPU device") if profile.is_cpu else (NEVER, "not a CPU device")


def tune_groups(profile: DeviceProfile) -> dict[str, TuneGroup]:
    """The five groups of candidates as this device ranks them, by name."""
    rules: dict[str, Rule] = {
        "accelerated": accelerated,
        "unit": unit,
        "tma": tma,
        "gemv": partial(gemv, profile=profile),
        "cpu": partial(cpu, profile=profile),
    }
    return {name: TuneGroup(name, rule) for name, rule in rules.items()}


# -- inside the groups ----------------------------------------------------------------------------


def always(key: Key) -> Rank:
    """First in its group."""
    return 3, ""


def double_buffered(key: Key) -> Rank:
    """Two stages hide the loads of long General products; elsewhere they only cost memory."""
    if key.analysis.kind is Kind.GENERAL and key.analysis.scale_global is not Scale.SMALL:
        return 3, "double buffering pays"
    return 2, "double buffering hardly pays"


def naive(key: Key) -> Rank:
    """One result per work-item: good for an inner product, a last resort for large products."""
    if key.analysis.kind is Kind.INNER_PRODUCT:
        return 3, "InnerProduct"
    return (2, "Small") if key.analysis.scale_global is Scale.SMALL else (0, "last resort")


def split_k_on_units(key: Key) -> Rank:
    if little_work(key) and key.definition.k >= _WORTH_SLICES:
        return 3, "little work"
    return (3, "deep k") if deep_k(key) else (1, "k is not deep")


def split_k_on_cpu(key: Key) -> Rank:
    return (3, "deep k") if deep_k(key) else (NEVER, "k is not deep")


def deep_k(key: Key) -> bool:
    """Whether the results are so few, and each so long, that cutting k makes more work in parallel."""
    d = key.definition
    return d.k >= _DEEP_RATIO * max(d.m, d.n) or (min(d.m, d.n) <= _THIN and d.k >= _DEEP_K)


def little_work(key: Key) -> bool:
    """Whether full f32 products are so small that plain multiply-adds may beat matrix instructions.

    There f32 takes three products of split operands, with launches before and after. On an H200 plain ones,
    with k cut in slices, are up to twice as fast up to 700 rows, columns and k, and at k = 64 up to 2000
    rows and columns. 1024 anchored has a plan of its own, matrix instructions first.
    """
    d = key.definition
    plain = d.elem_lhs.value == "f32" and d.precision == "full" and key.analysis.kind is Kind.GENERAL
    return plain and d.m * d.n * d.k * d.batch < _LITTLE_WORK


def demoted(rule: Rule, needs: tuple[str, ...], profile: DeviceProfile) -> Rule:
    """The rule, but last in the group where the device lacks something: never removed from the plan."""

    def ranked(key: Key) -> Rank:
        priority, why = rule(key)
        lack = lacking(needs, key.definition.elem_lhs.value, key.definition.precision, profile)
        if lack and priority > DEMOTED:
            return DEMOTED, lack
        return priority, why

    return ranked


def lacking(needs: tuple[str, ...], elem: str, precision: str, profile: DeviceProfile) -> str:
    """What the device lacks for candidates that need these units (cmma, mma, tma); '' if nothing."""
    missing = [unit for unit in needs if not profile.has_unit(unit, elem, precision)]
    if missing:
        wanted = elem if precision == "full" else f"{elem} at {precision}"
        return f"the device has no {' and no '.join(missing)} for {wanted}"
    if elem == "f64" and not profile.has_f64:
        return "the device has no f64"
    return ""


def _transposed(layout: Layout) -> bool:
    return layout.name == "MildlyPermuted" and layout.transposed

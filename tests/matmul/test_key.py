"""Keys: the golden ones, and every rule stated a second time and compared on generated problems."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.matmul.key import MatmulAutotuneKey, layout_of, trailing_zeros
from rooftune.matmul.problem import Elem, Operand, Problem, Shape
from rooftune.tuning.level import Level, anchor

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "keys.json").read_text())


def key_of(shape: str, dtype: str = "f32", level: str = "balanced") -> MatmulAutotuneKey:
    return MatmulAutotuneKey.build(Shape.parse(shape).problem(Elem(dtype)), Level(level))


def key_of_strides(case: dict) -> MatmulAutotuneKey:
    m, n, k, batch = case["m"], case["n"], case["k"], case.get("batch", 1)
    lead = (batch,) if batch > 1 else ()
    lhs = Operand((*lead, m, k), tuple(case["lhs_strides"]), Elem.F32)
    rhs = Operand((*lead, k, n), tuple(case["rhs_strides"]), Elem.F32)
    return MatmulAutotuneKey.build(Problem(lhs, rhs, Operand.contiguous((*lead, m, n), Elem.F32)))


@pytest.mark.parametrize("case", GOLDEN["keys"], ids=lambda case: case["shape"])
def test_golden_squares(case):
    assert key_of(case["shape"], GOLDEN["dtype"], GOLDEN["level"]).to_json() == case["key"]


def test_golden_json_has_the_fields_in_order():
    case = GOLDEN["keys"][-1]
    assert json.dumps(key_of(case["shape"]).to_json()) == json.dumps(case["key"])


@pytest.mark.parametrize("case", GOLDEN["more"], ids=lambda c: f"{c['shape']} {c['dtype']} {c['level']}")
def test_golden_shapes_types_and_levels(case):
    assert key_of(case["shape"], case["dtype"], case["level"]).to_json() == case["key"]


@pytest.mark.parametrize("pair", GOLDEN["equal"])
def test_golden_equal(pair):
    assert key_of(pair[0]) == key_of(pair[1])
    assert hash(key_of(pair[0])) == hash(key_of(pair[1]))


@pytest.mark.parametrize("pair", GOLDEN["not_equal"])
def test_golden_not_equal(pair):
    assert key_of(pair[0]) != key_of(pair[1])


@pytest.mark.parametrize("case", GOLDEN["strided"], ids=lambda case: case["case"])
def test_golden_strided(case):
    definition = key_of_strides(case).to_json()["definition"]
    assert definition["matrix_layout_lhs"] == case["lhs_layout"]
    assert definition["matrix_layout_rhs"] == case["rhs_layout"]
    for field in ("lhs_stride_factor", "rhs_stride_factor", "lhs_pow2_factor"):
        assert definition[field] == case[field]


@pytest.mark.parametrize("case", GOLDEN["layouts"], ids=lambda case: str(case["strides"]))
def test_golden_layouts(case):
    assert layout_of(case["strides"]).to_json() == case["layout"]


@pytest.mark.parametrize("case", GOLDEN["batched"], ids=lambda case: case["case"])
def test_golden_batched(case):
    assert key_of_strides(case).to_json() == case["key"]


def test_a_batch_on_the_command_line_has_a_contiguous_batch_axis():
    built = MatmulAutotuneKey.build(Shape.parse("300x200x100").problem(batch=5))
    assert built.to_json() == GOLDEN["batched"][0]["key"]


# -- the rules, stated again in other words ------------------------------------------------------


def zeros_of(value: int) -> int | None:
    """Trailing zero bits read off the binary digits; None for zero, which has no end of them."""
    digits = bin(abs(value))[2:]
    return None if value == 0 else len(digits) - len(digits.rstrip("0"))


def canonical_strides(shape, strides):
    out = list(strides)
    for axis, extent in enumerate(shape):
        if extent == 1:
            step = 1
            for later in shape[axis + 1 :]:
                step *= max(later, 1)
            out[axis] = step
    return out


def expected_side(operand: Operand, anchored_rows: int, anchored_cols: int):
    """(layout, stride factor, pow2 factor) of an operand, rule by rule."""
    strides = canonical_strides(operand.shape, operand.strides)
    row, col = strides[-2:]
    batch = [s for e, s in zip(operand.shape[:-2], strides[:-2], strict=True) if e != 1 and s != 0]
    every = [*batch, row, col]
    awkward = row == 0 or col == 0 or (row != 1 and col != 1) or any(s < 0 for s in every)
    if awkward or any(s < row or s < col for s in batch):
        return "HighlyPermuted", 0, 0
    transposed = row < col
    inward = batch[::-1]
    swapped = any(outer < inner for inner, outer in itertools.pairwise(inward))
    if transposed or swapped:
        layout = {"MildlyPermuted": {"transposed": transposed, "batch_swap": swapped}}
    else:
        layout = "Contiguous"
    contiguous_extent = anchored_rows if transposed else anchored_cols
    pow2 = zeros_of(contiguous_extent)
    pow2 = 4 if pow2 is None else min(4, pow2)
    if swapped:
        return layout, 0, pow2
    counted = [*batch, col if transposed else row]
    alignments = [zeros_of(s * operand.elem.size_bytes) for s in counted] + [zeros_of(operand.offset_bytes)]
    return layout, min([10] + [a for a in alignments if a is not None]), pow2


EXTENTS = st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 100, 512, 513, 1000, 2048, 2049, 4096]))


@st.composite
def operands(draw, shape, elem):
    kind = draw(st.sampled_from(["plain", "transposed", "padded", "wild"]))
    if kind in ("plain", "transposed"):
        made = Operand.contiguous(shape, elem, transposed=kind == "transposed")
        strides = made.strides
    elif kind == "padded":
        pitch = shape[-1] + draw(st.integers(0, 40))
        lead, step = [], shape[-2] * pitch + draw(st.integers(0, 5))
        for extent in reversed(shape[:-2]):
            lead.append(step)
            step *= extent
        strides = (*reversed(lead), pitch, 1)
    else:
        strides = tuple(draw(st.integers(-3, 5000)) for _ in shape)
    strides = tuple(
        0 if axis < len(shape) - 2 and draw(st.booleans()) and draw(st.booleans()) else s
        for axis, s in enumerate(strides)
    )
    offset = draw(st.sampled_from([0, 0, 1, 3, 4, 16, 100, 1 << 20])) * elem.size_bytes
    return Operand(shape, strides, elem, offset)


@st.composite
def problems(draw):
    m, n, k = draw(EXTENTS), draw(EXTENTS), draw(EXTENTS)
    lead = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    elem = draw(st.sampled_from(list(Elem)))
    return Problem(
        draw(operands((*lead, m, k), elem)),
        draw(operands((*lead, k, n), elem)),
        Operand.contiguous((*lead, m, n), elem),
        draw(st.sampled_from(["full", "tf32"])),
    )


@given(problems(), st.sampled_from(list(Level)))
def test_a_key_is_what_the_rules_say(problem, level):
    built = MatmulAutotuneKey.build(problem, level)
    d, a = built.to_json()["definition"], built.to_json()["analysis"]
    m, n, k = anchor(problem.m, level), anchor(problem.n, level), anchor(problem.k, level)
    assert (d["m"], d["n"], d["k"], d["batch"]) == (m, n, k, anchor(problem.batch, level))
    for side, operand, rows, cols in (("lhs", problem.lhs, m, k), ("rhs", problem.rhs, k, n)):
        found = (d[f"matrix_layout_{side}"], d[f"{side}_stride_factor"], d[f"{side}_pow2_factor"])
        assert found == expected_side(operand, rows, cols), side
        assert d[f"elem_{side}"] == operand.elem.value
    assert d["precision"] == (problem.precision if problem.elem is Elem.F32 else "full")
    sizes = [m, n, k]
    scale = "Small" if all(s < 512 for s in sizes) else "Medium" if all(s < 2048 for s in sizes) else "Large"
    assert a["scale_global"] == scale
    ones = "".join(
        name for name, extent in zip("mnk", (problem.m, problem.n, problem.k), strict=True) if extent == 1
    )
    kinds = {
        "": "General",
        "n": "MatVec",
        "m": "VecMat",
        "mk": "ScalarVec",
        "nk": "VecScalar",
        "mn": "InnerProduct",
        "k": "OuterProduct",
        "mnk": "ScalarProduct",
    }
    assert a["kind"] == kinds[ones]


@given(problems(), st.sampled_from(list(Level)))
def test_a_key_survives_json(problem, level):
    built = MatmulAutotuneKey.build(problem, level)
    assert MatmulAutotuneKey.from_json(json.loads(json.dumps(built.to_json()))) == built


@given(problems(), problems())
def test_keys_are_equal_exactly_when_nothing_differs(one, other):
    a, b = MatmulAutotuneKey.build(one), MatmulAutotuneKey.build(other)
    assert (a == b) == (not a.differences(b)) == (a.to_json() == b.to_json())


@given(problems())
def test_single_batch_axes_and_their_strides_change_nothing(problem):
    def wrapped(operand: Operand, stride: int) -> Operand:
        return Operand((1, *operand.shape), (stride, *operand.strides), operand.elem, operand.offset_bytes)

    lifted = Problem(
        wrapped(problem.lhs, 7), wrapped(problem.rhs, 0), wrapped(problem.out, 1), problem.precision
    )
    assert MatmulAutotuneKey.build(lifted) == MatmulAutotuneKey.build(problem)


@given(st.integers(-(1 << 40), 1 << 40), st.integers(0, 12))
def test_trailing_zeros_by_division(value, most):
    found = trailing_zeros(value, most)
    assert value % (1 << found) == 0
    assert found == most or value % (1 << (found + 1)) != 0


def test_what_keeps_1000_apart_from_1024():
    assert key_of("1000").differences(key_of("1024")) == {
        "lhs_stride_factor": (5, 10),
        "rhs_stride_factor": (5, 10),
    }


def test_the_short_form_for_people():
    assert key_of("1000").short() == (
        "m=1024 n=1024 k=1024 lhs_pow2=4 lhs_stride=5 rhs_pow2=4 rhs_stride=5 "
        "layout_rhs=Contiguous scale=Medium kind=General"
    )
    assert "layout_rhs=MildlyPermuted(transposed)" in key_of("1024T").short()
    assert "elem=f16" in key_of("1024", "f16").short()


@given(problems(), problems())
def test_the_short_form_tells_different_keys_apart(one, other):
    a, b = MatmulAutotuneKey.build(one), MatmulAutotuneKey.build(other)
    assert (a == b) == (a.short() == b.short())


def test_building_a_key_imports_neither_pyopencl_nor_numpy():
    program = (
        "import sys\n"
        "from rooftune.matmul.key import MatmulAutotuneKey\n"
        "from rooftune.matmul.problem import Shape\n"
        "MatmulAutotuneKey.build(Shape.parse('1024').problem())\n"
        "sys.exit('pyopencl' in sys.modules or 'numpy' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

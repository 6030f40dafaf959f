"""Specifications: what they say, and errors that name the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rooftune.errors import SpecError, UsageError
from rooftune.spec.launch import count_of, made_up
from rooftune.spec.reference import WrongOutput, compare, expected_by_numpy
from rooftune.spec.spec import load_spec, parse_spec

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = """
kernel_name = "scale"
kernel_source = "scale.cl"
problem_size = [100, 30]
grid_div_x = ["block_size_x", "tile"]
restrictions = ["block_size_x * tile <= 64", "problem_size_x % tile == 0"]

[tune_params]
block_size_x = [16, 32, 64]
block_size_y = 2
tile = [1, 2, 4]

[[arguments]]
name = "x"
type = "float32"
size = "problem_size_x * problem_size_y"
output = true

[[arguments]]
name = "a"
type = "float32"
value = 2.0

[reference.numpy]
x = "x * a"
"""
SOURCES = {"scale.cl": "__kernel void scale(__global float *x, float a) {}"}


def parse(text=GOOD):
    return parse_spec(text, Path("scale.toml"), SOURCES)


def test_configurations_are_those_that_no_restriction_rules_out():
    spec = parse()
    found = [(c["block_size_x"], c["tile"]) for c in spec.configurations()]
    assert found == [(16, 1), (16, 2), (16, 4), (32, 1), (32, 2), (64, 1)]
    assert spec.constants == {"block_size_y": 2}


def test_launch_sizes_are_rounded_up_to_whole_groups():
    spec = parse()
    assert spec.launch_size((100, 30), {"block_size_x": 16, "block_size_y": 2, "tile": 4}) == (
        (2 * 16, 15 * 2, 1),
        (16, 2, 1),
    )


def test_a_text_with_more_than_one_line_is_the_source_itself():
    spec = parse(GOOD.replace('"scale.cl"', "'''\n__kernel void scale() {}\n'''"))
    assert "__kernel" in spec.kernel.source


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.stem)
def test_the_examples_are_specifications(path):
    assert len(load_spec(path).configurations()) > 20


@pytest.mark.parametrize(
    "old, new, said",
    [
        ('kernel_name = "scale"', "", "kernel_name is missing"),
        ("kernel_source", "kernel_sourc", "kernel_sourc is not known"),
        ('"scale.cl"', '"none.cl"', "kernel_source: the file "),
        ("problem_size = [100, 30]", "problem_size = [0]", "problem_size has [0]"),
        ("problem_size = [100, 30]", "", "problem_size is missing"),
        ("block_size_y = 2", "block_size_y = []", "tune_params.block_size_y"),
        ("[16, 32, 64]", "[16, 16]", "a value twice"),
        ("[16, 32, 64]", "[true]", "has the value True"),
        ('type = "float32"', 'type = "floa32"', "is 'floa32'"),
        ("output = true", 'output = "yes"', "arguments[0].output is 'yes'"),
        ("output = true", "", "no output to compare"),
        ("value = 2.0", "", "needs either size or value"),
        ("block_size_x * tile <= 64", "block_size_x * tiel <= 64", "uses 'tiel'"),
        ("block_size_x * tile <= 64", "open('x')", "restrictions is wrong"),
        ("block_size_x * tile <= 64", "tile < 0", "leave no configuration"),
        ('x = "x * a"', 'y = "x * a"', "reference.numpy.y is not an output"),
        ('x = "x * a"', 'x = "x.tofile(1)"', "reference.numpy.x"),
        ('size = "problem_size_x * problem_size_y"', 'size = "tile"', "uses 'tile'"),
        ("[tune_params]", "[tune_params", "is not TOML"),
        ('name = "a"', 'name = "x"', "two of the same name"),
    ],
)
def test_errors_name_file_and_place(old, new, said):
    assert old in GOOD
    with pytest.raises(SpecError) as told:
        parse(GOOD.replace(old, new, 1))
    assert said in told.value.message
    assert "scale.toml" in told.value.message


def test_a_nearly_right_word_is_named():
    with pytest.raises(SpecError) as told:
        parse(GOOD.replace("grid_div_x", "grid_dvi_x"))
    assert "Did you mean 'grid_div_x'?" in told.value.hint


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[16, 32, 64]", '["a", "b"]', "tune_params.block_size_x has the value 'a'"),
        ("[16, 32, 64]", "[16, 0]", "tune_params.block_size_x has the value 0"),
        ("output = true", 'output = true\nfill = nan\n[[arguments]]\nname = "i"\ntype = "int8"\n'
         'size = 1\nfill = 300', "arguments[1].fill is 300"),
        ('"scale.cl"', '"s\\u0000.cl"', "can't be read"),
    ],
)  # fmt: skip
def test_values_that_nothing_can_be_done_with_are_refused(old, new, said):
    with pytest.raises(SpecError) as info:
        parse(GOOD.replace(old, new, 1))
    assert said in info.value.message


@pytest.mark.parametrize("size", ["problem_size_x - 5000", "1e400", "'four'"])
def test_an_array_of_no_number_of_elements_is_refused(size):
    spec = parse(GOOD.replace('"problem_size_x * problem_size_y"', f'"{size}"'))
    with pytest.raises(UsageError, match="the size of x"):
        count_of(spec, spec.arguments[0], (100, 30))


def test_a_scalar_that_its_type_cannot_hold_is_refused():
    spec = parse(GOOD.replace('type = "float32"\nvalue = 2.0', 'type = "int32"\nvalue = "2 ** 40"'))
    with pytest.raises(UsageError, match="the value of a"):
        made_up(spec, spec.arguments[1], (100, 30), np.random.default_rng(0))


def test_a_reference_of_one_number_is_that_of_every_element():
    spec = parse(GOOD.replace('"x * a"', '"2.5"'))
    output = np.full(4, 2.5, np.float32)
    expected = expected_by_numpy(spec.reference, {"x": output}, {"x": output.size})
    compare(spec.reference, expected, {"x": output})
    with pytest.raises(WrongOutput, match="4 elements, the reference 0"):
        compare(spec.reference, {"x": output[:0]}, {"x": output})
    output[3] = 1
    with pytest.raises(WrongOutput, match=r"x\[3\] is 1"):
        compare(spec.reference, expected, {"x": output})


@pytest.mark.parametrize(
    "name", ["", " ", "a\\nb", "a\\u001b[1m", "\\u202e", "my/kernel", "a.toml", "64", "8x8x8tT"]
)
def test_names_that_commands_cannot_tell_or_print_are_refused(name):
    with pytest.raises(SpecError, match="name is"):
        parse(f'name = "{name}"{GOOD}')
    assert parse(f'name = "größe 名"{GOOD}').name == "größe 名"


@pytest.mark.parametrize("name", ["", "a b", "x\\ny"])
def test_a_kernel_is_named_as_c_does(name):
    with pytest.raises(SpecError, match="kernel_name is"):
        parse(GOOD.replace('"scale"', f'"{name}"', 1))

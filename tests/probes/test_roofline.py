"""The roofline as data, and what the drawings make of it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rooftune.errors import UsageError
from rooftune.matmul.key import MatmulAutotuneKey
from rooftune.matmul.problem import Elem, Shape
from rooftune.probes import plot_terminal, plot_text
from rooftune.probes.roofline import Level, Point, Roof, Roofline, alike, distinct, label_of, levels_of
from rooftune.store.browse import named_key
from rooftune.tuning.bounds import Bound, Bounds
from rooftune.tuning.decision import Decision, Evidence

sizes = st.integers(12, 34).map(lambda power: 1 << power)
rates = st.floats(1e8, 1e13)


@given(st.lists(st.tuples(sizes, rates), min_size=1, max_size=40))
def test_levels_get_slower_and_larger_and_cover_every_sample(samples: list[tuple[int, float]]) -> None:
    levels = levels_of(samples)
    assert [level.is_memory for level in levels] == [False] * (len(levels) - 1) + [True]
    assert levels[-1].up_to_bytes == max(size for size, _ in samples)
    assert levels[0].bytes_per_s == max(rate for _, rate in samples)
    for faster, slower in pairwise(levels):
        assert slower.bytes_per_s < faster.bytes_per_s
        assert slower.up_to_bytes > faster.up_to_bytes


def test_a_sweep_with_two_caches_shows_three_levels() -> None:
    sweep = [700, 690, 300, 250, 245, 252, 120, 26, 25, 25.5]
    found = levels_of([(1 << (14 + i), rate * 1e9) for i, rate in enumerate(sweep)])
    assert [round(level.bytes_per_s / 1e9) for level in found] == [700, 300, 26]
    assert [level.up_to_bytes for level in found] == [1 << 15, 1 << 19, 1 << 23]


def test_noise_is_no_level() -> None:
    found = levels_of([(1 << (14 + i), rate) for i, rate in enumerate([100e9, 90e9, 104e9, 99e9, 101e9])])
    assert len(found) == 1 and found[0].is_memory


def test_alike_roofs_are_one() -> None:
    roofs = alike([("f32", 350e9), ("f64", 175e9), ("f16", 350e9), ("bf16", 349e9)])
    assert [(set(roof.names), roof.ops_per_s) for roof in roofs] == [
        ({"f32", "f16", "bf16"}, 350e9), ({"f64"}, 175e9)
    ]


def decision(key: object, **more: object) -> Decision:
    evidence = (Evidence(0, "matmul_naive", "d", "measured", (1e-3, 1e-3, 1e-3)),)
    bounds = Bounds((Bound("compute", 10**8, 1e12, 0.8), Bound("memory", 10**6, 1e10, 0.8)))
    return Decision(key, 0, evidence, tuner="matmul", bounds=bounds, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "label"), [({}, "64 f32"), ({"batch": 8}, "64 b8 f32"), ({"elem": Elem.F16}, "64 f16")]
)
def test_a_decision_is_labelled_by_its_key_as_lists_show_it(options: dict, label: str) -> None:
    elem = options.pop("elem", Elem.F32)
    key = MatmulAutotuneKey.build(Shape.parse("64").problem(elem, **options)).to_json()
    found = label_of(decision(key))
    assert found.startswith(label) and found == named_key("matmul", key)
    point = Point(found, str(elem), "w", 1.0, 1.0, None)
    assert point.name == found and replace(point, label="64").name == f"64 {elem}"


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ([1, 2], "kernel:saxpy [1,2]"),
        ({"n": 8, "dtype": "f32", "aligned": True}, "kernel:saxpy n=8 dtype=f32 aligned=true"),
        ({"sizes": [1, 2]}, 'kernel:saxpy {"sizes":[1,2]}'),
        ({"problem_size": [64, 32]}, "kernel:saxpy 64x32"),
    ],
)
def test_a_decision_of_another_tuner_is_labelled_by_its_tuner_and_key(key: object, label: str) -> None:
    assert label_of(replace(decision(key), tuner="kernel:saxpy")) == label


def test_labels_that_are_alike_say_what_sets_them_apart() -> None:
    square = MatmulAutotuneKey.build(Shape.parse("64").problem(Elem.F32)).to_json()["definition"]
    odd, even, f16 = (
        decision({"definition": {**square, **more}})
        for more in ({"lhs_pow2_factor": 3}, {}, {"elem_lhs": "f16"})
    )
    labels = [label for _, label in distinct([(d, label_of(d)) for d in (odd, even, f16)])]
    assert labels == ["64 f32 @256 lhs_pow2=3", "64 f32 @256 lhs_pow2=4", "64 f16 @256"]


@given(st.floats(1e-4, 1e3), st.floats(1.5, 1e12))
def test_ticks_are_few_powers_of_ten_inside_the_span(low: float, factor: float) -> None:
    high = low * factor
    ticks = plot_text.decades(low, high)
    assert len(ticks) <= 8
    assert all(low <= tick * 1.001 and tick <= high * 1.001 for tick in ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(351e9, "351 GFLOP/s"), (4.312e12, "4.31 TFLOP/s"), (64.4e12, "64.4 TFLOP/s"), (7, "7.00 FLOP/s")],
)
def test_rates_in_three_digits(value: float, text: str) -> None:
    assert plot_text.rate(value, "FLOP/s") == text


LEVELS = [Level(6e11, 1 << 16), Level(5e10, 1 << 22), Level(2.5e10, 1 << 30, True)]
ROOFS = [Roof(("f32", "f16"), 3.5e11), Roof(("f64",), 1.75e11)]
points = st.builds(
    Point,
    label=st.just("1024"),
    dtype=st.sampled_from(["f32", "f64"]),
    winner=st.just("matmul_naive"),
    intensity=st.floats(1e-2, 1e4),
    ops_per_s=st.floats(1e6, 4e11),
    share=st.one_of(st.none(), st.floats(0, 1.05)),
)


@settings(deadline=None, max_examples=25)
@given(st.lists(points, max_size=70), st.integers(20, 160), st.integers(5, 50), st.booleans())
def test_the_terminal_drawing_fits_and_lists_everything_on_it(
    drawn: list[Point], columns: int, rows: int, unicode: bool
) -> None:
    text = plot_terminal.draw(Roofline("Chip", ROOFS, LEVELS, drawn), columns, rows, unicode=unicode)
    picture, _, listed = text.partition("\n\n")
    title, *lines = picture.splitlines()
    assert title == "Roofline of Chip, FLOP/s over operations per byte"
    assert max(map(len, lines)) <= max(columns, plot_terminal.LEAST_COLUMNS)
    assert len(lines) <= max(rows, plot_terminal.LEAST_ROWS)
    assert len(listed.splitlines()) == len(LEVELS) + len(ROOFS) + len(drawn)
    assert max(map(len, listed.splitlines())) <= 80
    assert "operations per byte" in lines[-1]
    assert "\x1b" not in text
    if not unicode:
        assert text.isascii()


def test_every_mark_of_the_list_is_on_the_drawing() -> None:
    drawn = [Point(str(n), "f32", "w", 2.0**n, 1e9 * 2**n, 0.5) for n in range(6)]
    text = plot_terminal.draw(Roofline("Xyz", ROOFS, LEVELS, drawn), 110, 30)
    picture, _, listed = text.partition("\n\n")
    inside = "".join(line.split("│")[1] for line in picture.splitlines() if line.count("│") == 2)
    inside += "".join(re.findall(r"┤(.*)│", picture))
    for line in listed.splitlines():
        assert line.split()[0].removesuffix(")") in inside


@given(st.lists(points, min_size=2, max_size=60))
@settings(deadline=None, max_examples=25)
def test_no_number_on_the_drawing_can_be_taken_for_another(drawn: list[Point]) -> None:
    text = plot_terminal.draw(Roofline("Xyz", ROOFS, LEVELS, drawn), 79, 28)
    picture, _, listed = text.partition("\n\n")
    inside = re.findall(r"[│┤](.*)│", picture)
    shown = [int(number) for line in inside for number in re.findall(r"\d+", line)]
    assert len(shown) == len(set(shown))
    marks = [line.split(")")[0].strip() for line in listed.splitlines()]
    assert len(marks) == len(set(marks)) == len(LEVELS) + len(ROOFS) + len(drawn)
    left_out = [line for line in listed.splitlines() if line.endswith(plot_terminal.NO_ROOM)]
    missing = {int(line.split(")")[0]) for line in left_out}
    assert {*shown, *missing} == set(range(1, len(drawn) + 1))


def test_a_few_points_in_one_place_all_have_their_numbers() -> None:
    drawn = [Point(str(n), "f32", "w", 100.0, 2e11 * (1 + n / 1000), 0.5) for n in range(12)]
    text = plot_terminal.draw(Roofline("Xyz", ROOFS, LEVELS, drawn), 79, 28)
    assert plot_terminal.NO_ROOM not in text
    assert all(re.search(rf"[^\d]{n}[^\d]", text.partition("\n\n")[0]) for n in range(1, 13))


def test_lines_have_letters_beyond_z() -> None:
    marks = [plot_text.line_mark(number) for number in range(60)]
    assert marks[:2] == ["A", "B"] and marks[25:28] == ["Z", "AA", "AB"]
    assert len(set(marks)) == 60


@pytest.mark.parametrize(
    ("share", "then", "text"),
    [
        (0.7, 0.7, "70% of it"), (0.701, 0.702, "70% of it"), (0.7, 0.84, "70% of it (84% when decided)"),
        (0.7, None, "70% of it"), (None, 0.7, ""),
    ],
)
def test_a_share_says_when_it_was_another(share: float | None, then: float | None, text: str) -> None:
    point = Point("64", "f32", "w", 1.0, 1e9, share, decided_share=then)
    assert plot_text.share_text(point, "of it") == text


def test_a_png_and_an_html_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from rooftune.probes.plot_files import write_html, write_png

    drawn = [Point(f"<{n}>", "f32", "matmul_naive", 2.0**n, 1e9 * 2**n, 0.5) for n in range(40)]
    drawn = [p for p in drawn if p.intensity < 1e6]
    roofline = Roofline("Chip <&>", ROOFS, LEVELS, drawn)
    write_png(roofline, tmp_path / "r.png")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    write_html(roofline, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<svg" in page and "Chip &lt;&amp;&gt;" in page
    assert page.count("<tr>") == len(drawn) + 1
    assert "src=" not in page and "<3>" not in page
    listed = re.findall(r"<li>(.*?)</li>", page)
    numbers = [*map(plot_text.level_text, LEVELS), *map(plot_text.roof_text, ROOFS)]
    assert listed == numbers, "in the order of the numbers on the drawing"
    assert page.count("Roofline of Chip") == 2, "in the tab and once on the page"
    with pytest.raises(UsageError, match="cannot be written"):
        write_png(roofline, tmp_path / "missing" / "r.png")

"""`tune keys`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "keys.json").read_text())


def test_without_shapes_the_golden_seven(tune):
    ran = tune("keys", "--json")
    assert ran.code == 0 and ran.err == ""
    assert ran.json["schema"] == "rooftune/keys/1"
    assert ran.json["level"] == GOLDEN["level"]
    assert ran.json["keys"] == GOLDEN["keys"]
    assert ran.json["equal"] == GOLDEN["equal"]


def test_differences_are_listed_for_unequal_pairs_that_share_m_n_k(tune):
    found = tune("keys", "--json").json["differences"]
    assert [(pair["a"], pair["b"]) for pair in found] == [
        ("768", "1000"),
        ("768", "1024T"),
        ("1000", "1024"),
        ("1000", "1024T"),
        ("1024", "1024T"),
        ("1025", "2048"),
    ]
    assert found[2]["fields"] == {"lhs_stride_factor": [5, 10], "rhs_stride_factor": [5, 10]}
    transposed = {"MildlyPermuted": {"transposed": True, "batch_swap": False}}
    assert found[4]["fields"] == {"matrix_layout_rhs": ["Contiguous", transposed]}


def test_two_shapes_are_compared_though_they_share_no_extent(tune):
    assert tune("keys", "512", "768").out.splitlines()[-1] == (
        "key(512) == key(768): false  m 512 / 1024, n 512 / 1024, k 512 / 1024"
    )


def test_a_square_as_it_is_printed_is_a_shape(tune):
    (of_label, of_extent) = tune("keys", "1000x1000T", "1000T", "--json").json["keys"]
    assert of_label["key"] == of_extent["key"]


def test_for_people(tune):
    lines = tune("keys").out.splitlines()
    assert lines[2] == (
        "1000  -> m=1024 n=1024 k=1024 lhs_pow2=4 lhs_stride=5 rhs_pow2=4 rhs_stride=5 "
        "layout_rhs=Contiguous scale=Medium kind=General"
    )
    assert "key(768) == key(1024): true" in lines
    assert "key(1000) == key(1024): false  lhs_stride 5 / 10, rhs_stride 5 / 10" in lines
    assert len(lines) == 7 + 7


@pytest.mark.parametrize("case", GOLDEN["more"], ids=lambda c: f"{c['shape']} {c['dtype']} {c['level']}")
def test_options_reach_the_key(case, tune):
    ran = tune("keys", case["shape"], "--dtype", case["dtype"], "--level", case["level"], "--json")
    assert ran.json["keys"] == [{"shape": case["shape"], "key": case["key"]}]


def test_a_batch(tune):
    ran = tune("keys", "300x200x100", "--batch", "5", "--json")
    assert ran.json["keys"][0]["key"] == GOLDEN["batched"][0]["key"]


def test_level_and_precision_come_from_the_configuration(tune, tmp_path, monkeypatch):
    (tmp_path / "cubecl.toml").write_text('[autotune]\nlevel = "full"\n[matmul]\nf32_precision = "tf32"\n')
    found = tune("keys", "1000", "--json").json
    assert found["level"] == "full"
    assert found["keys"][0]["key"]["definition"]["m"] == 1000
    assert found["keys"][0]["key"]["definition"]["precision"] == "tf32"
    monkeypatch.setenv("CUBECL_AUTOTUNE_LEVEL", "extensive")
    assert tune("keys", "1000", "--json").json["level"] == "extensive"
    assert tune("keys", "1000", "--level", "1", "--json").json["level"] == "balanced"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["12a"], "'12a' is not a shape"),
        (["1x2"], "'1x2' is not a shape"),
        (["-5"], "no such option"),
        (["--levl", "full"], "no such option: --levl. Did you mean '--level'?"),
        (["3000000000"], "2147483647"),
        (["8", "--dtype", "i8"], "'i8' is not an element type"),
        (["8", "--batch", "0"], "--batch"),
        (["8", "--level", "hard"], "hard"),
        (["8", "--precision", "half"], "half"),
        (["8", "--precision", "tf32", "--dtype", "f64"], "tf32 is for f32"),
        (["8", "--config", "missing.toml"], "missing.toml"),
    ],
)
def test_bad_usage_is_two_with_a_sentence(args, said, tune):
    ran = tune("keys", *args)
    assert ran.code == 2 and ran.out == ""
    assert said in ran.err and "Traceback" not in ran.err
    as_json = tune("keys", *args, "--json")
    assert as_json.code == 2
    assert said in as_json.json["error"]["message"]


def test_a_start_needs_typer_and_rich_alone():
    program = (
        "import sys\n"
        "from rooftune.cli.app import main\n"
        "try:\n"
        "    main(['keys'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "sys.exit('pyopencl' in sys.modules or 'numpy' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0
    assert ran.stdout.startswith("512 ")


def test_a_field_has_one_name_in_all_lines(tune):
    out = tune("keys", "1000", "1024", "1024T", "1024t", "--precision", "full").out
    shown = {word.partition("=")[0] for line in out.splitlines() if " -> " in line for word in line.split()}
    for line in out.splitlines():
        _, _, fields = line.partition("false  ")
        assert {field.split()[0] for field in fields.split(", ") if field} <= shown, line

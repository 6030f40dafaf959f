"""`tune explain` of kernels that are not matrix products: named by file, by name, by size, by id."""

from __future__ import annotations

import jsonschema
import pytest
from rooftune.formats import load_schema

from ..spec.test_kernel import RIGHT, SPEC


@pytest.fixture
def tuned(tune, tmp_path):
    """Two sizes of the kernel `scale` tuned in the environment `own`."""
    (tmp_path / "scale.cl").write_text(RIGHT)
    (tmp_path / "scale.toml").write_text(SPEC)
    ran = tune("kernel", "scale.toml", "--size", "5000", "--size", "300", "--repeat", "0", *HERE)
    assert ran.code == 0, ran.err
    firsts = [line for line in ran.out.splitlines() if " first:" in line]
    assert [line.partition(" first:")[0] for line in firsts] == ["scale 5000", "scale 300"]


HERE = ("--environment", "own")


def test_by_file_name_size_and_id(tuned, tune):
    page = tune("explain", "scale.toml", *HERE)
    assert page.code == 0, page.err
    assert page.out.startswith("scale 5000 on ")
    assert "x 5000 falls in the bucket 8192 of level balanced" in page.out
    assert "4 configurations" in page.out and "Beware  - this was made" not in page.out
    assert tune("explain", "scale", "5000", *HERE).out == page.out
    data = tune("explain", "scale", "300", *HERE, "--json").json
    jsonschema.Draft202012Validator(load_schema("explain")).validate(data)
    assert data["tuner"] == "kernel:scale" and data["shape"] == "300" and data["rounds"] == []
    listed = tune("cache", "ls", *HERE, "--json").json["entries"]
    by_id = [tune("explain", "scale", entry["id"][:8], *HERE, "--json").json["key"] for entry in listed]
    assert len(listed) == 2 and by_id == [entry["key"] for entry in listed]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["scale"], 2, "there are 2 decisions of this tuner: 8192 ("),
        (["scale", "70000"], 4, "Tune it first: tune kernel scale --size 70000 --environment own"),
        (["scale", "zz"], 2, "'zz' names no decision of this tuner; there are: "),
        (["scale", "300", "--dtype", "f64"], 2, "are for shapes"),
        (["unknown"], 2, "neither a shape nor a tuner with decisions here; those are: kernel:scale"),
        (["64", "64"], 2, "one argument too many"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(args, code, said, tuned, tune):
    ran = tune("explain", *args, *HERE)
    assert ran.code == code and said in ran.err and ran.out == ""


def test_a_kernel_that_changed_since_is_a_sign(tuned, tune, tmp_path):
    (tmp_path / "scale.cl").write_text(RIGHT.replace("a * x[i]", "x[i] * a"))
    assert "has changed since: the next call tunes the key anew" in tune("explain", "scale.toml", *HERE).out
    (tmp_path / "scale.toml").write_text(SPEC.replace("[1, 4]", "[1, 2, 4]"))
    assert "another list of configurations than today" in tune("explain", "scale.toml", *HERE).out


def test_the_command_that_would_help_has_the_options_that_were_given(tune):
    options = ["--dtype", "f16", "--batch", "2", "--level", "full", *HERE]
    for command in ("explain", "decisions"):
        assert f"tune shapes 9 {' '.join(options)}\n" in tune(command, "9", *options).err


def test_what_was_imported_is_explained_without_its_specification(tuned, tune):
    assert tune("cache", "export", "some.json", *HERE).code == 0
    assert tune("cache", "import", "some.json", "--environment", "new").code == 0
    page = tune("explain", "scale", "300", "--environment", "new")
    assert page.code == 0 and page.out.startswith("scale 300 on "), page.err


def test_what_is_listed_is_what_is_taken(tuned, tune, tmp_path):
    (tmp_path / "own.toml").write_text(f'name = "matmul"{SPEC}')
    here = ("--environment", "both")
    assert tune("kernel", "own.toml", "--repeat", "0", *here).code == 0
    assert tune("cache", "rm", "--yes", "--tuner", "matmul", *here).out == "removed 0 decisions\n"
    assert tune("shapes", "4", "--repeat", "0", *here).code == 0
    listed = tune("cache", "ls", *here).out
    assert "kernel:matmul 8192" in listed
    page = tune("explain", "kernel:matmul", "5000", *here)
    assert page.code == 0 and page.out == tune("explain", "matmul", "5000", *here).out, page.err
    assert tune("kernel", "kernel:matmul", "--warm", "--repeat", "0", *here).code == 0
    ran = tune("cache", "rm", "--yes", "--tuner", "matmul", *here)
    assert ran.out == "removed 1 decision\n" and "kernel:matmul is another tuner" in ran.err
    assert "kernel:matmul 8192" in tune("cache", "ls", *here).out
    assert tune("cache", "rm", "--yes", "--tuner", "kernel:matmul", *here).out == "removed 1 decision\n"


def test_parameters_with_one_value_are_left_out_and_names_fold_at_commas(tune, tmp_path, monkeypatch):
    here = ("--environment", "brief")
    (tmp_path / "scale.cl").write_text(RIGHT)
    (tmp_path / "scale.toml").write_text(SPEC.replace("[1, 4]", "[1, 4]\nhalo_of_the_image = [7]"))
    monkeypatch.setenv("COLUMNS", "40")
    ran = tune("kernel", "scale.toml", "--repeat", "0", "--verbose", *here)
    assert ran.code == 0, ran.err
    explained, listed = tune("explain", "scale", *here), tune("cache", "ls", *here)
    data = tune("explain", "scale", *here, "--json").json
    shown = tune("cache", "show", tune("cache", "ls", *here, "--json").json["entries"][0]["id"], *here)
    winner = data["winner"]["name"]
    assert winner.endswith(",halo_of_the_image=7") and winner in data["verdict"]
    for page in (ran, explained, listed, shown):
        assert page.code == 0, page.err
        assert "halo" not in page.out and winner.removesuffix(",halo_of_the_image=7") in page.out
    assert max(map(len, explained.out.splitlines())) <= 40
    monkeypatch.setenv("COLUMNS", "24")
    assert "\n   per_item=" in tune("explain", "scale", *here).out


def test_one_configuration_has_no_decision_to_make_first(tune, tmp_path):
    (tmp_path / "scale.cl").write_text(RIGHT)
    one = SPEC.replace("[1, 4]", "[1]").replace("[16, 64, 4096]", "[16]")
    (tmp_path / "one.toml").write_text(f'name = "lone"{one}')
    page = tune("explain", "one.toml", *HERE)
    assert page.code == 4 and "one configuration" in page.err, page.err


def test_the_command_that_would_help_can_be_pasted(tuned, tune):
    assert "--environment 'o w n'\n" in tune("explain", "9", "--environment", "o w n").err

"""The schemas of JSON outputs, and outputs held against them."""

from __future__ import annotations

import jsonschema
import pytest
from rooftune.errors import UsageError
from rooftune.formats import load_schema, schema_names


def fits(name: str, value: object) -> None:
    jsonschema.Draft202012Validator(load_schema(name)).validate(value)


@pytest.mark.parametrize("name", schema_names())
def test_every_schema_is_one_and_complete_in_itself(name, tune):
    ran = tune("schema", name)
    assert ran.code == 0
    jsonschema.Draft202012Validator.check_schema(ran.json)
    assert ran.json["title"]
    assert ".json" not in ran.out.replace("json-schema.org", "")


def test_the_list_of_schemas(tune):
    assert [line.split()[0] for line in tune("schema").out.splitlines()] == list(schema_names())
    listed = tune("schema", "--json").json
    fits("schema", listed)
    assert [entry["name"] for entry in listed["schemas"]] == list(schema_names())


def test_an_unknown_schema(tune):
    ran = tune("schema", "nothing")
    assert ran.code == 2
    assert "keys" in ran.err
    with pytest.raises(UsageError):
        load_schema("../errors")


@pytest.mark.parametrize(
    "args",
    [
        ["keys"],
        ["keys", "1", "1", "7x9x1t", "--level", "full", "--dtype", "bf16", "--batch", "3"],
        ["keys", "0x5x7", "--precision", "tf32"],
        ["plan", "1024", "--assume", "gpu,cmma"],
        ["plan", "1x1x1", "--assume", "cpu"],
        ["version"],
    ],
    ids=" ".join,
)
def test_outputs_fit_their_schema(args, tune):
    ran = tune(*args, "--json")
    assert ran.code == 0
    fits(args[0], ran.json)


@pytest.mark.parametrize(
    "args",
    [
        ["keys", "x"],
        ["nothing"],
        ["keys", "--nothing"],
        ["plan", "5", "--device", "no such"],
        ["schema", "x"],
        [],
    ],
)
def test_failures_fit_the_schema_of_errors(args, tune):
    ran = tune(*args, "--json")
    assert ran.code in (2, 3)
    fits("error", ran.json)

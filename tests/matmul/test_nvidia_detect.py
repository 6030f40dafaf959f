"""Units are claimed by capability and confirmed by trial builds; anything that goes wrong takes one away."""

from dataclasses import dataclass, field

import pytest
from rooftune.device.profile import DeviceProfile
from rooftune.device.units import units_of
from rooftune.errors import UnsupportedError, WorkError
from rooftune.matmul.nvidia.detect import detect_units


@dataclass
class Compiler:
    """A client whose compiler refuses sources that contain a word."""

    capability: tuple[int, int] | None
    refused: str = "no such word"
    error: Exception = field(default_factory=lambda: WorkError("refused"))
    builds: int = 0

    @property
    def profile(self) -> DeviceProfile:
        return DeviceProfile("test", capability=self.capability)

    def build(self, source, options=(), rewrite=None):
        self.builds += 1
        if self.refused in source:
            raise self.error


def units(found) -> set[str]:
    return {unit for unit, _, _ in found}


@pytest.mark.parametrize("capability", [None, (7, 5)])
def test_other_devices_have_none_and_build_nothing(capability):
    compiler = Compiler(capability)
    assert detect_units(compiler) == frozenset()
    assert compiler.builds == 0


def test_what_each_generation_claims():
    assert units(units_of(DeviceProfile("a", capability=(8, 6)))) == {"cmma", "mma"}
    hopper = units_of(DeviceProfile("h", capability=(9, 0)))
    assert {("mma", "f32", "tf32"), ("tma", "f32", "full"), ("tma", "bf16", "full")} <= hopper
    assert not any(unit == "cmma" and elem == "f32" for unit, elem, _ in hopper)
    later = units_of(DeviceProfile("b", capability=(10, 0)))
    assert units(later) == {"cmma", "mma", "tma"} and not any(elem == "f32" for _, elem, _ in later)


def test_a_compiler_that_takes_everything_confirms_every_claim():
    assert detect_units(Compiler((9, 0))) == units_of(DeviceProfile("h", capability=(9, 0)))


@pytest.mark.parametrize("error", [WorkError("refused"), UnsupportedError("no PTX text")])
@pytest.mark.parametrize(
    ("word", "left"),
    [
        ("wgmma.mma_async", {"cmma", "tma"}),
        ("void trial(__global const uchar *map)", {"cmma", "mma"}),
        ("mma.sync.aligned.m16n8k16", {"mma", "tma"}),
        ("void trial", set()),
    ],
)
def test_a_failed_trial_takes_its_unit_away(word, left, error):
    assert units(detect_units(Compiler((9, 0), word, error))) == left


def test_older_devices_lay_warp_products_by_hand():
    assert units(detect_units(Compiler((8, 0), "mma.sync.aligned.m16n8k16"))) == set()
    assert units(detect_units(Compiler((8, 0)))) == {"cmma", "mma"}

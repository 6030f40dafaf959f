"""Configurations of specified kernels as people read them: without the parameters that have one value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .spec import KERNEL

if TYPE_CHECKING:
    from ..tuning.decision import Decision


def brief_names(decision: Decision) -> Callable[[str], str]:
    """Shortens the names of a decision's configurations wherever they are in a text.

    What has the same value in all of them is left out. Other tuners' names stay as they are.
    """
    names = [evidence.name for evidence in decision.evidence] if decision.tuner.startswith(KERNEL) else []
    pattern = _pattern([name.split(",") for name in names])
    if pattern is None:
        return lambda text: text
    return lambda text: pattern.sub(lambda found: ",".join(found.groups()), text)


def _pattern(configurations: Sequence[list[str]]) -> re.Pattern[str] | None:
    """Any of the configurations, with a group for each parameter that varies; None where nothing is to do.

    A text value may hold a comma: such names can't be taken apart, and stay whole.
    """
    parameters = {tuple(part.partition("=")[0] for part in parts) for parts in configurations}
    if len(parameters) != 1:
        return None
    values = [sorted(set(column), key=len, reverse=True) for column in zip(*configurations, strict=True)]
    varying = sum(len(column) > 1 for column in values)
    if varying in (0, len(values)):
        return None
    parts = ["|".join(map(re.escape, column)) for column in values]
    grouped = (
        f"({part})" if len(column) > 1 else f"(?:{part})" for part, column in zip(parts, values, strict=True)
    )
    return re.compile(",".join(grouped))

"""What can be tuned: named candidates, the groups they belong to, and the set that shares a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import UsageError
from .bounds import Bounds
from .foresight import Foresight

Ranking = int | tuple[int, str]
"""A priority, or a priority and the reason for it in a few words."""

Priority = int | Callable[[Any], Ranking]
"""A fixed priority, or one that depends on the key. Higher is tried earlier; negative: not for this key."""


@dataclass(frozen=True)
class TuneGroup:
    """Candidates of one kind, whose turn comes by the group's priority for the key."""

    name: str
    priority: Priority


class SearchStrategy(Protocol):
    """Chooses, turn by turn, which of many candidates are measured."""

    @property
    def most(self) -> int:
        """How many it proposes at most."""

    def propose(self, measured: Mapping[int, float | None]) -> Sequence[int]:
        """The candidates to measure next; none: the search is over.

        `measured` has the median seconds of each measured so far, None for one that could not be.
        """


@dataclass
class Tunable:
    """One named way to compute the problem.

    `fn(inputs)` runs it once: it enqueues its work, does not wait, and returns the output. It raises
    UnsupportedError, before compiling anything, for inputs it can't serve. `prepare(inputs)`, where
    given, compiles what `fn` will launch and launches nothing: the tuner calls it while the device is
    not held, so that other processes don't wait for a compiler.

    `digest` says whether evidence measured earlier is about the same code. Unless given, it is the hash
    of name, version and source: change `version` whenever `fn` changes in a way `source` does not show.

    `proof` tells the prover how to show that it computes the right result: the tuner only passes it on. For
    a tunable of one's own it is a function of an importable module, or its name as "module:function":
    `function(client, name, key)` compiles, and returns a function that runs on operands of its own and
    raises if the result is wrong. It runs in a worker process, so that a crash or a hang there hurts nobody.
    """

    name: str
    fn: Callable[[Any], Any]
    version: str = field(default="1", kw_only=True)
    source: str = field(default="", kw_only=True)
    digest: str = field(default="", kw_only=True)
    prepare: Callable[[Any], object] | None = field(default=None, kw_only=True)
    proof: Any = field(default=None, kw_only=True)
    memberships: list[tuple[TuneGroup, Priority]] = field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("a tunable has an empty name", hint="Decisions are stored by name: give it one.")
        self.digest = self.digest or separated_hash(self.name, self.version, self.source)

    def group(self, group: TuneGroup, priority: Priority) -> Tunable:
        """Joins a group, with a priority inside it. May be called for several groups. Returns itself."""
        self.memberships.append((group, priority))
        return self


class TunableSet:
    """The candidates for one operation, and what the tuner must know of its inputs.

    `key(inputs)` gives the bucketed description of the problem: anything hashable that is JSON, or an
    object with `to_json()`. `inputs(key, inputs)` gives the inputs to measure on; they must be such
    that running a candidate does not touch the caller's output. Without it the caller's are used.

    `called` is what a message calls a candidate, `hint` what it advises when none of them ran.
    """

    called = "candidate"
    hint = "The reasons above are the candidates' own. Another device, type or shape may work."

    def __init__(self, key: Callable[[Any], Any], inputs: Callable[[Any, Any], Any] | None = None) -> None:
        self.key = key
        self.inputs = inputs or _same_inputs
        self.bounds: Callable[[Any, Any], Bounds | None] | None = None
        self.bounds_again: Callable[[Any, Any], Bounds | None] | None = None
        self.check: Callable[[Any, Any], object] | None = None
        self.check_ahead: Callable[[Any], object] | None = None
        self.floor: Callable[[Any, Any, Tunable], float | None] | None = None
        self.foresight: Callable[[Any, Any, Tunable], Foresight] | None = None
        self.problem: Callable[[Any, Any], Any] | None = None
        self.search: Callable[[Any], SearchStrategy] | None = None
        self._tunables: list[Tunable] = []
        self._checksum = self._fingerprint = ""

    def with_tunable(self, tunable: Tunable) -> TunableSet:
        """Adds a candidate; its index is the number of those before it. Names must differ."""
        if any(other.name == tunable.name for other in self._tunables):
            raise UsageError(
                f"two tunables are named '{tunable.name}'",
                hint="Decisions are stored by name: names must differ.",
            )
        self._tunables.append(tunable)
        self._checksum = self._fingerprint = ""
        return self

    def with_bounds(
        self,
        bounds: Callable[[Any, Any], Bounds | None],
        again: Callable[[Any, Any], Bounds | None] | None = None,
    ) -> TunableSet:
        """`bounds(key, inputs)` tells the least time the hardware allows; None where that is unknown.

        `again` tells it after measuring the peaks behind it once more: called when a candidate beats the
        bounds, which then were measured in a busier moment than the candidate.
        """
        self.bounds = bounds
        self.bounds_again = again
        return self

    def with_check(
        self, check: Callable[[Any, Any], object], ahead: Callable[[Any], object] | None = None
    ) -> TunableSet:
        """`check(inputs, output)` raises when the output is wrong; run before a candidate may win.

        It is given the measuring inputs, after the candidate's last sample. `ahead(inputs)` does what of it
        needs no output: it is called before proofs are waited for, and what it raises does not matter.
        """
        self.check, self.check_ahead = check, ahead
        return self

    def with_floor(self, floor: Callable[[Any, Any, Tunable], float | None]) -> TunableSet:
        """`floor(key, inputs, tunable)` gives seconds a candidate certainly needs, or None.

        A candidate that can't beat the best measured so far is then not measured at all.
        """
        self.floor = floor
        return self

    def with_foresight(self, foresight: Callable[[Any, Any, Tunable], Foresight]) -> TunableSet:
        """`foresight(key, inputs, tunable)` tells what is foreseen of a candidate before anything is known.

        It changes who is compiled and measured first, and who then not at all.
        """
        self.foresight = foresight
        return self

    def with_problem(self, problem: Callable[[Any, Any], Any]) -> TunableSet:
        """`problem(key, inputs)` tells, as JSON data, which of the key's problems these inputs are, or None.

        A decision keeps it (`measured_on`), so that the very same can be measured again.
        """
        self.problem = problem
        return self

    def with_search(self, search: Callable[[Any], SearchStrategy]) -> TunableSet:
        """`search(key)` chooses which of many candidates are measured; at level full all of them are."""
        self.search = search
        return self

    @property
    def tunables(self) -> tuple[Tunable, ...]:
        return tuple(self._tunables)

    @property
    def checksum(self) -> str:
        """Hash over the candidates' names in order. A decision made for other names is not used."""
        if not self._checksum:
            self._checksum = separated_hash(*(tunable.name for tunable in self._tunables))
        return self._checksum

    @property
    def fingerprint(self) -> str:
        """Hash over the candidates' digests in order: the same code, not only the same names."""
        if not self._fingerprint:
            self._fingerprint = separated_hash(*(tunable.digest for tunable in self._tunables))
        return self._fingerprint

    def __len__(self) -> int:
        return len(self._tunables)

    def __getitem__(self, index: int) -> Tunable:
        return self._tunables[index]


def separated_hash(*parts: str) -> str:
    """SHA-256 over the parts, each kept apart: ("ab", "c") and ("a", "bc") differ."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def key_to_json(key: Any) -> Any:
    """The key as plain JSON data: what its `to_json()` gives, else the key itself."""
    return key.to_json() if hasattr(key, "to_json") else key


def key_text(key: Any) -> str:
    """The key as canonical JSON. Keys are equal when these texts are. Raises UsageError."""
    try:
        return _CANONICAL.encode(key_to_json(key))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the key {key!r} can't be written as JSON: {error}",
            hint="A key is made of finite numbers, text, booleans, None, lists, tuples and dicts, "
            "or has a to_json() that returns such.",
        ) from error


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _same_inputs(key: Any, inputs: Any) -> Any:
    return inputs

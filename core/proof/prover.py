"""The tuner's prover: verdicts from the store, from this process's memory, from workers, or from here."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from ..config import ProofConfig
from ..device.client import Client
from ..device.discovery import location_of
from ..errors import UnsupportedError
from ..matmul.problem import Problem
from ..spec.launch import check_accepts
from ..tuning.context import Verdict
from ..tuning.tunable import Tunable, key_text, key_to_json
from ..waiting import Stopwatch
from .kernel_trial import REFERENCE, KernelTrials
from .nursery import INSIDE
from .pool import Pool, Ticket, Usage, early_pool, pool_for
from .subject import KernelProof, MatmulProof
from .suite import SUITE_VERSION, problem_to_json, programs_hash
from .trial import Outcome, judged, prove
from .worker import own_trial, resolve

UNCHANGING = ("right", "wrong", "build")
"""What is stored. Everything else may be a busy machine's fault and is tried again by the next process."""

Where = Literal["worker", "inline"]
ProofKey = dict[str, Any]


class ProofStore(Protocol):
    """Verdicts that outlive the process, by device and what was proven."""

    def load(self, device_id: str, proof_key: Any) -> dict[str, Any] | None: ...

    def save(self, device_id: str, proof_key: Any, verdict: Mapping[str, Any]) -> None: ...


class Prover:
    """The tuner's prover: a DeviceProver for each client, made when it is first needed.

    `early` are workers for the first of them, started already. `warn` is told when workers can't run.
    """

    def __init__(
        self,
        store: ProofStore | None = None,
        config: ProofConfig | None = None,
        early: Pool | None = None,
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._warn = warn
        self._store = store
        self._config = config or ProofConfig()
        self._provers: dict[int, DeviceProver] = {}
        self._early = early
        self._lock = threading.Lock()

    def expect(self, device: str | int | None = None) -> None:
        """Start workers for the device that a client will be opened for next."""
        with self._lock:
            if self._early is None and not self._provers:
                self._early = early_pool(self._config, device)

    def opened(self, client: Client) -> None:
        """Tells workers that were started early which device it became: they have it open sooner."""
        with self._lock:
            expected = self._early is not None
        if expected:
            self.of(client)

    def of(self, client: Client) -> DeviceProver:
        """The prover of this client's device."""
        with self._lock:
            if id(client) not in self._provers:
                pool, self._early = self._early, None
                self._provers[id(client)] = DeviceProver(client, self._store, self._config, pool, self._warn)
            return self._provers[id(client)]

    def prove(
        self, client: Any, tunables: Mapping[int, Tunable], key: Any, inputs: Any
    ) -> Mapping[int, Verdict]:
        """Starts what is not yet proven, in this order; the mapping waits for a verdict when asked for it."""
        return self.of(client).prove(tunables, key, inputs)

    def paused(self, client: Any) -> AbstractContextManager[object]:
        """Held while samples are taken, so that workers don't disturb them."""
        return self.of(client).paused()

    def alone(self, client: Any, tunable: Tunable, key: Any, inputs: Any) -> Verdict:
        """A worker's verdict on one candidate, whatever is known of it."""
        return self.of(client).alone(tunable, key, inputs)

    @property
    def usage(self) -> Usage:
        """What workers did so far for all devices, and how long this process waited for proofs."""
        with self._lock:
            used = [prover.usage for prover in self._provers.values()]
        return Usage(
            sum(u.workers for u in used),
            sum(u.launches for u in used),
            sum(u.compiles for u in used),
            sum(u.wall_s for u in used),
        )

    def close(self) -> None:
        """End all workers now."""
        with self._lock:
            for prover in self._provers.values():
                prover.close()
            if self._early is not None:
                self._early.close()


class DeviceProver:
    """Proves the candidates of one device. One for the process and device; thread-safe.

    `mode` of the configuration: `worker` proves in processes of their own, and here where those can't run;
    `inline` proves here; `off` proves nothing. `pool`: workers that were started before the device was known.
    `warn` is told once when they can't run, since a candidate that crashes then takes this process with it.
    """

    def __init__(
        self,
        client: Client,
        store: ProofStore | None = None,
        config: ProofConfig | None = None,
        pool: Pool | None = None,
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._warn: Callable[[str], object] | None = warn
        self.client = client
        self.config = config or ProofConfig()
        self._store = store
        self._known: dict[str, Verdict] = {}
        self._waited_s = 0.0
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        if self.config.mode == "worker":
            self._pool = pool or pool_for(self.config)
            self._pool.introduce(_hello(client))
            if client.profile.is_cpu:
                client.at_rest = self._pool.paused

    def warm_up(self) -> None:
        """Start workers already, while something else is to be done first."""
        if self._pool is not None:
            self._pool.warm_up()

    def close(self) -> None:
        """End the workers now. A later proof is then run in this process."""
        if self._pool is not None:
            self._pool.close()

    @property
    def usage(self) -> Usage:
        """What workers did so far; `wall_s` is how long this process waited for proofs, wherever they ran."""
        used = self._pool.usage if self._pool is not None else Usage()
        return Usage(used.workers, used.launches, used.compiles, self._waited_s)

    @property
    def fallback(self) -> str:
        """Why workers can't run here, or empty."""
        return self._pool.unavailable if self._pool is not None else ""

    def paused(self) -> AbstractContextManager[object]:
        """Held while samples are taken: on a CPU device the workers stand still, for they share its cores."""
        return self.client.exclusive() if self.client.profile.is_cpu else nullcontext()

    def prove(self, tunables: Mapping[int, Tunable], key: Any, inputs: Any) -> Mapping[int, Verdict]:
        """Starts what is not yet proven, in this order; the mapping waits for a verdict when asked for it."""
        here = KernelTrials(self.client)
        return Verdicts(self, {i: self._begin(tunables[i], key, inputs, here) for i in tunables})

    def alone(self, tunable: Tunable, key: Any, inputs: Any) -> Verdict:
        """A worker's verdict, whatever is known; None passed where no worker can tell."""
        proof, job = tunable.proof, None
        if isinstance(proof, MatmulProof):
            job = _matmul_job(proof, inputs.problem, with_suite=False)
        elif isinstance(proof, KernelProof):
            job = _kernel_job(proof, inputs.size)
        elif reference_of(proof):
            job = _own_job(tunable, key)
        ticket = self._submit(job) if job is not None else None
        if ticket is None:
            return Verdict(None)
        outcome = ticket.wait()
        return Verdict(None) if outcome.status == "unavailable" else _verdict(outcome, "worker")

    def _begin(self, tunable: Tunable, key: Any, inputs: Any, here: KernelTrials) -> Verdict | Pending:
        if self.config.mode == "off" or tunable.proof is None:
            return Verdict(None)
        if isinstance(tunable.proof, MatmulProof):
            return self._begin_matmul(tunable.proof, inputs.problem)
        if isinstance(tunable.proof, KernelProof):
            return self._begin_kernel(tunable.proof, inputs.size, here)
        return self._begin_own(tunable, key)

    # --- matmul ------------------------------------------------------------------------------------

    def _begin_matmul(self, proof: MatmulProof, problem: Problem) -> Verdict | Pending:
        candidate = proof.candidate
        try:
            plan = candidate.plan(problem, self.client.profile)
        except UnsupportedError as error:
            return Verdict(None, str(error), unsupported=True)
        except Exception as error:
            return Verdict(False, f"it cannot plan its launches: {type(error).__name__}: {error}", "inline")
        of_suite = {
            "digest": candidate.digest,
            "programs": programs_hash(plan),
            "elements": f"{problem.lhs.elem},{problem.rhs.elem},{problem.out.elem}",
            "precision": problem.precision,
            "suite": SUITE_VERSION,
        }
        of_problem = f"{candidate.digest} {key_text(problem_to_json(problem))}"
        known = self._known.get(of_problem)
        suite_known = self._recall(of_suite)
        if suite_known is not None and suite_known.passed is False:
            return suite_known
        if known is not None:
            return known
        job = _matmul_job(proof, problem, with_suite=suite_known is None)
        return Pending(
            self._submit({"programs": of_suite["programs"], **job}),
            inline=lambda: prove(
                self.client,
                candidate,
                problem,
                with_suite=suite_known is None,
                phase=lambda what, case: None,
                hold=self.client.exclusive,
            ),
            keep=lambda outcome, where: self._keep_matmul(outcome, where, of_suite, of_problem),
        )

    def _keep_matmul(self, outcome: Outcome, where: Where, of_suite: ProofKey, of_problem: str) -> Verdict:
        """A wrong result or a failed build condemns these programs, on whatever problem it was met."""
        verdict = _verdict(outcome, where)
        self._known[of_problem] = verdict
        return self._remember(of_suite, outcome, verdict)

    # --- specified kernels -------------------------------------------------------------------------

    def _begin_kernel(
        self, proof: KernelProof, size: tuple[int, ...], here: KernelTrials
    ) -> Verdict | Pending:
        kernel = proof.kernel
        try:
            check_accepts(kernel.spec, self.client.profile, size, proof.configuration)
        except UnsupportedError as error:
            return Verdict(None, str(error), unsupported=True)
        job = _kernel_job(proof, size)
        proof_key = {"digest": kernel.digest, "size": job["size"], "configuration": job["configuration"]}
        of_reference = f"{kernel.digest} {size}"
        known = self._recall(proof_key) or self._known.get(of_reference)
        if known is not None:
            return known
        return Pending(
            self._submit(job),
            inline=lambda: here(job, phase=lambda what, case: None, hold=self.client.exclusive),
            keep=lambda outcome, where: self._keep_kernel(outcome, where, proof_key, of_reference),
            spoiled=lambda: self._known.get(of_reference),
        )

    def _keep_kernel(self, outcome: Outcome, where: Where, proof_key: ProofKey, of_reference: str) -> Verdict:
        """A reference that fails does so for all configurations, and none of them is to blame."""
        verdict = _verdict(outcome, where)
        if outcome.case == REFERENCE:
            self._known[of_reference] = verdict
            return verdict
        return self._remember(proof_key, outcome, verdict)

    # --- tunables of a user's own ------------------------------------------------------------------

    def _begin_own(self, tunable: Tunable, key: Any) -> Verdict | Pending:
        reference = reference_of(tunable.proof)
        proof_key = {"digest": tunable.digest, "proof": reference, "key": key_to_json(key)}
        known = self._recall(proof_key)
        if known is not None:
            return known
        return Pending(
            self._submit(_own_job(tunable, key)) if reference else None,
            inline=lambda: self._try_own_here(tunable, key),
            keep=lambda outcome, where: self._remember(proof_key, outcome, _verdict(outcome, where)),
        )

    def _try_own_here(self, tunable: Tunable, key: Any) -> Outcome:
        trial = resolve(tunable.proof) if isinstance(tunable.proof, str) else tunable.proof
        name, data = tunable.name, key_to_json(key)
        return judged(partial(own_trial, self.client, trial, name, data, lambda what, case: None), "", 1)

    # --- where verdicts come from and go -----------------------------------------------------------

    def _submit(self, job: dict[str, Any]) -> Ticket | None:
        if self._pool is None or not self._pool.usable:
            return None
        return self._pool.submit(job)

    def _recall(self, proof_key: ProofKey) -> Verdict | None:
        name = key_text(proof_key)
        known = self._known.get(name)
        if known is None and self._store is not None:
            stored = self._store.load(self.client.device_id, proof_key)
            if stored is not None:
                known = self._known[name] = Verdict(stored["passed"], stored["reason"], stored["where"])
        return known

    def _remember(self, proof_key: ProofKey, outcome: Outcome, verdict: Verdict) -> Verdict:
        if verdict.unsupported:
            return verdict
        self._known[key_text(proof_key)] = verdict
        if self._store is not None and outcome.status in UNCHANGING:
            self._store.save(
                self.client.device_id,
                proof_key,
                {"passed": verdict.passed, "reason": verdict.reason, "where": verdict.where},
            )
        return verdict

    def settle(self, pending: Pending) -> Verdict:
        """Waits for a worker's outcome, or proves here where no worker could."""
        watch = Stopwatch()
        try:
            spoiled = pending.spoiled()
            if spoiled is not None:
                self.cancel([pending])
                return spoiled
            outcome = pending.ticket.wait() if pending.ticket is not None else None
            if outcome is not None and outcome.status != "unavailable":
                return pending.keep(outcome, "worker")
            self._say_why_here()
            return pending.keep(pending.inline(), "inline")
        except BaseException:  # an interruption: nobody waits for the workers any more
            self.cancel([pending])
            raise
        finally:
            self._waited_s += watch.worked_s  # without the time in which others held the device

    def _say_why_here(self) -> None:
        if not self.fallback or os.environ.get(INSIDE):
            return
        with self._lock:
            warn, self._warn = self._warn, None
        if warn is not None:
            warn(f"candidates are proven in this process, not in workers: {self.fallback}")

    def cancel(self, pending: list[Pending]) -> None:
        if self._pool is not None:
            self._pool.cancel([p.ticket for p in pending if p.ticket is not None])


@dataclass(frozen=True)
class Pending:
    """A proof under way: a worker's ticket, how to prove it here instead, and where the verdict goes.

    `spoiled()` is the verdict where another proof under way has shown that this one is in vain.
    """

    ticket: Ticket | None
    inline: Callable[[], Outcome]
    keep: Callable[[Outcome, Where], Verdict]
    spoiled: Callable[[], Verdict | None] = lambda: None


class Verdicts(Mapping[int, Verdict]):
    """Verdicts by index, each waited for when it is asked for. What nobody asks for is given up."""

    def __init__(self, prover: DeviceProver, begun: dict[int, Verdict | Pending]) -> None:
        self._prover = prover
        self._begun = begun
        weakref.finalize(self, _give_up, prover, begun).atexit = False

    def __getitem__(self, index: int) -> Verdict:
        begun = self._begun[index]
        if isinstance(begun, Pending):
            begun = self._begun[index] = self._prover.settle(begun)
        return begun

    def __iter__(self) -> Iterator[int]:
        return iter(self._begun)

    def __len__(self) -> int:
        return len(self._begun)


def _give_up(prover: DeviceProver, begun: dict[int, Verdict | Pending]) -> None:
    prover.cancel([pending for pending in begun.values() if isinstance(pending, Pending)])


def _verdict(outcome: Outcome, where: Where) -> Verdict:
    if outcome.status == "unsupported":
        return Verdict(None, outcome.reason, where, unsupported=True)
    reason = outcome.reason
    if outcome.status == "skipped":
        return Verdict(None, reason, where)
    if outcome.status in ("timeout", "crash") and outcome.case:
        reason = f"{reason} ({outcome.case})"
    return Verdict(outcome.status == "right", reason, where)


def _matmul_job(proof: MatmulProof, problem: Problem, *, with_suite: bool) -> dict[str, Any]:
    name, problem_json = proof.candidate.name, problem_to_json(problem)
    return {"name": name, "table": proof.table, "problem": problem_json, "suite": with_suite}


def _kernel_job(proof: KernelProof, size: tuple[int, ...]) -> dict[str, Any]:
    return {
        "kernel": proof.kernel.texts,
        "size": list(size),
        "configuration": dict(proof.configuration),
    }


def _own_job(tunable: Tunable, key: Any) -> dict[str, Any]:
    return {"trial": reference_of(tunable.proof), "name": tunable.name, "key": key_to_json(key)}


def reference_of(proof: Any) -> str:
    """ "module:function" for a function that another process can import; else empty."""
    if isinstance(proof, str):
        return proof
    module, name = getattr(proof, "__module__", ""), getattr(proof, "__qualname__", "")
    importable = module and module != "__main__" and name.isidentifier()
    return f"{module}:{name}" if importable else ""


def _hello(client: Client) -> dict[str, Any]:
    return {
        "device_id": client.device_id,
        "location": location_of(client.device),
        "memory_bytes": _memory_limit_bytes() if client.profile.is_cpu else 0,
    }


def _memory_limit_bytes() -> int:
    """Three quarters of this machine's memory, at least 4 GiB: a worker's share on a CPU device."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0
    return max(4 << 30, total * 3 // 4)

"""`tune kernel`: tunes a kernel of one's own, described in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from . import tuning
from .complete import own_kernels
from .options import Common, common
from .render import STARTING, format_seconds, status_line, wrapped

if TYPE_CHECKING:
    from rooftune.kernel_run import SizeRun
    from rooftune.spec.spec import KernelSpec

SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPEC.toml",
        autocompletion=own_kernels,
        help="The specification; or the name of one tuned before.",
        show_default=False,
    ),
]
SizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--size", metavar="SIZE", help="Problem size instead of the file's: 4096 or 1024x1024. Repeatable."
    ),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the fastest configurations, and where the time went.")
]

SHOWN = 5


@common()
def kernel(
    common: Common,
    spec: SpecArgument,
    size: SizeOption = None,
    cold: tuning.ColdOption = False,
    warm: tuning.WarmOption = False,
    repeat: tuning.RepeatOption = 20,
    verbose: VerboseOption = False,
) -> None:
    """Tune an OpenCL kernel of your own over the parameters its specification names.

    The winner is stored like any decision, and the specification with it: `rooftune.kernel(NAME)` runs
    it from Python. A run that fails leaves what is stored as it was. Of many configurations only those that
    promise something are measured; at level full all of them are. What a specification says is in
    docs/howto/kernel-specs.md.
    """
    tuning.check_cold_or_warm(cold, warm)
    settings = common.settings()
    with status_line(STARTING) as status:
        from rooftune.kernel_run import parse_size, tune_kernel
        from rooftune.spec.registry import find_spec, is_path
        from rooftune.spec.spec import load_spec

        sizes = [parse_size(text) for text in size or ()]
        described = load_spec(spec) if is_path(spec) else None
        session = tuning.open_session(common, settings, status, cold, warm)
        described = described or find_spec(session.store, spec)
        session.foresee_kernel(described, sizes or described.problem_sizes, device=common.device)
        client = session.client(common.device)
        tuning.say_device(common, status, client)
        done = tuning.shown_as_done(common, status, lambda run: _lines(described, run, verbose))
        begin = tuning.named_in(status, len(sizes or described.problem_sizes))
        report = tune_kernel(session, client, described, sizes, repeat=repeat, begin=begin, done=done)
        session.close(f"kernel {spec}")
    costs = {_label(described, run): run.cost for run in report.sizes}
    tuning.finish(common, "kernel", report, costs)


def _label(described: KernelSpec, run: SizeRun) -> str:
    """A kernel and a size as `tune explain` takes them: scale 50000."""
    return f"{described.name} {run.label}"


def _lines(described: KernelSpec, run: SizeRun, verbose: bool) -> Iterator[str]:
    decision = run.cost.decision
    if decision is None:
        yield f"{_label(described, run)} failed"
        return
    from rooftune.spec.brief import brief_names

    brief = brief_names(decision)
    yield from tuning.call_lines(_label(described, run), run.cost)
    yield f"  {brief(tuning.winner_text(run.cost, decision))}"
    yield f"  {run.measured} of {len(decision.evidence)} configurations measured"
    if not verbose:
        return
    yield "  the fastest of the others:"
    others = sorted(decision.ranking[1:], key=lambda evidence: evidence.median_s or 0.0)
    for evidence in others[: SHOWN - 1]:
        dropped = "  (dropped)" if evidence.outcome == "dropped" else ""
        yield from _other(format_seconds(evidence.median_s), f"{brief(evidence.name)}{dropped}")
    yield from (f"    {brief(remark)}" for remark in tuning.smaller_medians(decision))
    failed = [evidence for evidence in decision.evidence if evidence.outcome == "error"]
    for evidence in failed[:SHOWN]:
        reason = evidence.reason.partition("\n")[0]
        yield from _other("failed", brief(f"{evidence.name}: {reason}"))
    if len(failed) > SHOWN:
        yield from _other("failed", f"and {len(failed) - SHOWN} more")
    yield from tuning.spent_lines(run.cost)


def _other(figure: str, text: str) -> list[str]:
    """A configuration that didn't win, in two columns."""
    return wrapped(f"    {figure:>10}  {text}", " " * 16)

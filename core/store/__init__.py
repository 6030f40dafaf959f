"""What is kept between runs: one SQLite file per environment. What happens to it never stops the job."""

from .stores import (
    Claim,
    DecisionStore,
    ProbeStore,
    ProofStore,
    Records,
    Store,
    null_store,
    open_store,
)

__all__ = [
    "Claim",
    "DecisionStore",
    "ProbeStore",
    "ProofStore",
    "Records",
    "Store",
    "null_store",
    "open_store",
]

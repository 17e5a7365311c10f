"""Find wrong pairs: among a user's images and captions, or among the training pairs of a finished run."""

from baselines.audit.call import apply_audit as apply_audit
from baselines.audit.call import find_wrong_embeddings as find_wrong_embeddings
from baselines.audit.call import find_wrong_pairs as find_wrong_pairs
from baselines.audit.call import write_audit as write_audit


def __getattr__(name: str) -> object:
    """Import the table of a run's pairs where it is asked for, as it needs torch."""
    if name == "audit":
        from baselines.audit.pairs import audit

        return audit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

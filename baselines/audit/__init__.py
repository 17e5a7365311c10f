"""Find wrong pairs: among somebody's images and captions, or among the training pairs of a finished run."""

from typing import TYPE_CHECKING

from baselines.audit.apply import apply_audit as apply_audit
from baselines.audit.pairs import audit as audit
from baselines.audit.report import write_audit as write_audit
from baselines.audit.report import write_lemon as write_lemon

if TYPE_CHECKING:
    from baselines.audit.find import find_wrong_pairs as find_wrong_pairs


def __getattr__(name: str) -> object:
    """Import what reads somebody's pairs when it is asked for: the audit of a run needs none of it."""
    if name == "find_wrong_pairs":
        from baselines.audit.find import find_wrong_pairs

        return find_wrong_pairs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What goes wrong for a user: one base error, a few named ones.

Every message is one sentence that names the argument, what it got, what was expected and the fix.
The command line prints the sentence and exits with code 2; nothing else of ours reaches a user.
"""

from collections.abc import Iterable


class NclBenchError(Exception):
    """Base of every error that a user can cause and mend."""


class DataError(NclBenchError):
    """A dataset file is missing, damaged, or not what the protocol says."""


class NoiseError(NclBenchError):
    """A noise setting or noise file is refused; noise is never redrawn or reinterpreted."""


class ScoresError(NclBenchError):
    """A scores file or similarity matrix is refused."""


class SubmissionError(NclBenchError):
    """A submission or a leaderboard row is refused."""


class RecipeError(NclBenchError):
    """A training recipe is refused."""


class TrainingError(NclBenchError):
    """Training stopped: a non-finite loss, a damaged checkpoint, an output folder in use."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """The sentence for a name that no registry holds.

    Args:
        kind: what the name stands for, such as ``"dataset"``.
        name: what was given.
        known: the registry's keys.

    Returns:
        One sentence that lists the known names.
    """
    return f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(known))}"

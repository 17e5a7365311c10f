"""Find wrong training pairs: a table of all pairs of a finished run, a page to look at, and the pairs to keep."""

from baselines.audit.apply import apply_audit as apply_audit
from baselines.audit.find import find_wrong_pairs as find_wrong_pairs
from baselines.audit.pairs import audit as audit
from baselines.audit.report import write_audit as write_audit
from baselines.audit.report import write_lemon as write_lemon

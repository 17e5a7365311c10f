"""Find wrong pairs: among a user's images and captions, or among the training pairs of a finished run."""

from baselines.audit.call import apply_audit as apply_audit
from baselines.audit.call import find_wrong_embeddings as find_wrong_embeddings
from baselines.audit.call import find_wrong_pairs as find_wrong_pairs
from baselines.audit.call import write_audit as write_audit

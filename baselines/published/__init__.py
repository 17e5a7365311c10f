"""What connects the baselines with published code: its checkpoints and its numbers."""

"""Checkpoints of the papers' code."""

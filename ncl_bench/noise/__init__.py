"""Synthetic noise: drawn, read from files, and told apart by hash (protocol.md, Synthetic noise)."""

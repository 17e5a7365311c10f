"""Draw synthetic noise, read noise files, and identify them by hash (docs/protocol.md, Synthetic noise)."""

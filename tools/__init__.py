"""Programs of maintainers, which the package does not need."""

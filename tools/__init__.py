"""Programs for maintainers; the package does not need them."""

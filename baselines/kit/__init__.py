"""All that the author of a method or a backbone imports."""

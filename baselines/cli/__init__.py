"""Commands of the reference methods, a module per group; each command imports torch when it runs."""

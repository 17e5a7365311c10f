"""The benchmark for noisy-correspondence learning: data, noise, protocol, submissions. Never torch."""

__version__ = "0.1.0"

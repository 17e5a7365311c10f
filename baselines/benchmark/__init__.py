"""What ``python -m baselines.benchmark`` measures, and how."""

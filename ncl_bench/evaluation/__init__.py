"""Results: their type, checks of plausibility, comparison, plots and examples."""

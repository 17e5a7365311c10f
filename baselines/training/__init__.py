"""From a recipe to a trained run, and from runs to submissions; it names no method and no dataset."""

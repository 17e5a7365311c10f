"""Builds the embedded dataset ``pictograms`` from pinned packages."""

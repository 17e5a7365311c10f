"""Makes the embedded dataset ``pictograms`` from pinned packages."""

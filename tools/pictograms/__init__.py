"""Makes the embedded dataset ``pictograms`` from pinned packages, and says how far a rebuild differs."""

"""Region features of a user's own images: decoded, encoded, pooled to a grid, and written as ``prepare`` reads them."""

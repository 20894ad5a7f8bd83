"""Black-box search: predictions alone, no gradient."""

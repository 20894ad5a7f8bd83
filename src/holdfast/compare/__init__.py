"""Two runs of one kind side by side: what became better or worse, and whether that is more than chance."""

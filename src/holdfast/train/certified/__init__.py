"""Training of a shallow single-object detector with provable bounds under a small patch of any content."""

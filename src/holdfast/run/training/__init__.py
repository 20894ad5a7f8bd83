"""Training of the user's own models: what is trained on, what is held out, and what came of it."""

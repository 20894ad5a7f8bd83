"""A patch contest on disk: its rules, its images and truth, and what participants hand in."""

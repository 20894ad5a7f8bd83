"""The learned decoder: a small net that restores what JPEG took from the project's own scenes."""

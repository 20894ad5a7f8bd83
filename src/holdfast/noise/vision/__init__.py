"""The noise suite of image models: every option alone, the worst together, the staircase."""

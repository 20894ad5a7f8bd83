"""The noise suite of causal language models: precisions on question sets."""

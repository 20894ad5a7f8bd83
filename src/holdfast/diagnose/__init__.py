"""Training and deployment side by side: where they part, what each difference costs, dumps."""

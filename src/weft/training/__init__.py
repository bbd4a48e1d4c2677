"""Training: any alignment of the formula as a loss, on sentence-transformers' trainer."""

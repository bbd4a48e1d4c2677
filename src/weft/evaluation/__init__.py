"""How good a ranking is: collections, runs, measures, baselines, significance, and few-shot adaptation."""

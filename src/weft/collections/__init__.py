"""Collections of texts with queries and judgements: reading them, and the small one that comes with the package."""

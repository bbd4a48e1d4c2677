"""Other libraries' retrievers over a weft index: one thin, optional module each. weft itself imports none of them."""

"""Other libraries' retrievers over a weft index: thin, optional, one module each; nothing here is imported by weft."""

"""One index on many machines: a store of immutable shards, servers for them, a router in front."""

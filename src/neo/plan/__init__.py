"""A sharding plan: what it is, whether it is whole, how it is written down and shown."""

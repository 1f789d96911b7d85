"""The buckets over NATS. The only importer of the library."""

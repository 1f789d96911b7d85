"""Permissions in NATS: keys, JWTs, certificates, the server's configuration, devices' credentials.

`nkeys`, `cryptography` and the connection are used in here; no seed or private key leaves its file
but in a bundle.
"""

"""Encoders and the models made of them: loading, saving, routes, identities."""

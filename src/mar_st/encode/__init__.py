"""Offline encoding: a corpus becomes a folder of vectors that an index is built of."""

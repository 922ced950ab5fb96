"""Existing document spaces, and small query encoders for them.

The vectors of the documents do not change, so an existing index can be used unchanged. A query encoder is
trained to reproduce the teacher's own vectors (LEAF; Stage I of MAR with any teacher).
"""

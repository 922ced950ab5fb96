"""Hard negatives for training pairs, from one or several retrievers, and the consistency filter.

`sentence_transformers.util.mine_hard_negatives` mines with one dense model. This package adds: several
retrievers at once, BM25 among them; exclusion of texts nearly equal to a positive; a count of what every
filter dropped; choices that depend only on the seed and the query; and vectors that are kept in the teacher
store, from which a killed run resumes.
"""

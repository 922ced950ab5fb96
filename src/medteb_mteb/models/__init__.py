"""Models as mteb loads them: MAR, BM25, folders of this machine."""

"""The server's connections, which replace uvicorn's own.

uvicorn closes a connection that is idle after an answer, but not one that never sends anything or sends its
head one byte at a time. It accepts heads of any size, and its limit on connections refuses the next caller
instead of the silent ones.

Throughput is that of uvicorn's own connections (482 to 704 and 509 to 589 searches per second in four runs).
With 5,000 silent callers uvicorn answers every other caller with 503, while these connections answer 333
searches per second, and uvicorn behind nginx 311. Behind nginx three faults remain, also with its limits
per address: bodies of 1 MiB delay other callers to a p99 of 13 times idle (4.8 here), 100 pipelined searches
to 16 times (4.4 here), and callers who read 16 KiB per second are disconnected (`benchmarks/serve.py` and
`limits.py`, `--app proxy-connections` and `limited-connections`).

`config` passes the protocol and the guard to uvicorn. They and `mar_st.serve.supervise` depend on private
pieces of uvicorn, which `seams` checks before the server listens.
"""

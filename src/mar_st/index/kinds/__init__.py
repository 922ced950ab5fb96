"""The kinds of index, one module each; to add a kind, add a module here.

| kind | compares | in memory per vector |
| --- | --- | --- |
| `exact` | all vectors, float32 | 4 dim |
| `int8` | all vectors, one byte per dimension (scalar quantizer) | dim |
| `binary` | all vectors, one bit per dimension | dim / 8 |
| `hnsw` | neighbours in a graph; vectors float32, or int8 (`storage`) | 4 dim or dim, + 8.6 M |
| `ivf-pq` | product codes in the nearest cells | m + 8 |

All but `exact` and `hnsw` with float32 keep the vectors in float16 beside the index (`vectors.npy`). From
this file, a search reads only the rows that it compares again (`rescore` times as many candidates as
results). Every file is mapped into memory; FAISS 1.15 maps scalar-quantized, HNSW, IVF-PQ and binary indexes
with `IO_FLAG_MMAP_IFC` (with `IO_FLAG_MMAP` only IVF-PQ).
"""

"""Teachers: sources of the vectors that a query encoder is aligned to.

A teacher returns vectors of texts: a model (`ModelTeacher`), vectors encoded earlier (`FolderTeacher`), an
embeddings endpoint (`EndpointTeacher`). All return `Vectors`: rows on disk, whatever their number. A
`CrossEncoderTeacher` returns scores of pairs instead.
"""

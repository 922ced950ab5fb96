"""Nano sets: HAKARI-Bench's small retrieval sets of 200 queries and 10,000 documents, with candidate lists.

`table` says what was published, `layout` reads and checks a set, `measures` scores rankings, `rankings` keeps
them so that they can be scored again. The tasks are in `medteb_mteb.tasks.nano`, the builder in
`medteb_mteb.curation.nano`.
"""

from __future__ import annotations

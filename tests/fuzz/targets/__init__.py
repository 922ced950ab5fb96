"""One kind of input each: `prepare(folder)` returns a `Target`."""

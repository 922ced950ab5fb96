"""C++ kernels, each with a portable fallback, and the features of this processor."""

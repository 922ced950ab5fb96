"""C++ kernels, and what this processor can do; each has a portable fallback."""

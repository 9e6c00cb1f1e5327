"""NVIDIA back end: kernels to Triton text, to machine code, and the native code that launches them."""

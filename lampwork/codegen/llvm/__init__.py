"""LLVM back end: kernels to LLVM IR text, to object code, to one position-independent image."""

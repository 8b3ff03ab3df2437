"""The verifier for code that is not ours: PyTorch, JAX, NumPy, or a pair of functions over arrays.

`retrograd.verify.torch`, `.jax`, `.numpy` and `.function` are the ways in; docs/verification.md has the chain and how
bounds are derived.
"""

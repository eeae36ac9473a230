"""The benchmark tested by its adversaries: attacks must never score, honest kernels must never be rejected."""

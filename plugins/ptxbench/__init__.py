"""PTXBench: can a language model write CUDA kernels that use the architecture's own instructions?"""

__version__ = "0.1.0"

import pytest

from ptxbench.toolchain import rules


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("cublas_v2.h", "cuBLAS"),
        ("cublasLt.h", "cuBLAS"),
        ("cublasdx.hpp", "cuBLAS"),
        ("cudnn.h", "cuDNN"),
        ("cudnn_graph_v9.h", "cuDNN"),
        ("cudnn_frontend/graph_interface.h", "cuDNN"),
        ("cudnn_frontend.h", "cuDNN"),
        ("cutlass/gemm/device/gemm.h", "CUTLASS"),
        ("cute/tensor.hpp", "CuTe"),
        ("cub/cub.cuh", "CUB device algorithms"),
        ("cccl/cub/device/device_reduce.cuh", "CUB device algorithms"),
        ("thrust/sort.h", "Thrust"),
        ("cusparseLt.h", "cuSPARSE"),
        ("cusolverDn.h", "cuSOLVER"),
        ("cufft.h", "cuFFT"),
        ("nccl.h", "NCCL"),
        ("nvrtc.h", "NVRTC"),
        ("flashinfer/attention/prefill.cuh", "FlashInfer"),
        ("torch/extension.h", "PyTorch"),
        ("ATen/cuda/CUDAContext.h", "PyTorch"),
        ("c10/cuda/CUDAStream.h", "PyTorch"),
        ("deep_gemm/fp8_gemm.cuh", "DeepGEMM"),
        ("kittens.cuh", "ThunderKittens"),
        ("Python.h", "Python"),
        ("python3.11/Python.h", "Python"),
    ],
)
def test_library_headers(path: str, library: str):
    assert rules.library_of_header(path) == library


@pytest.mark.parametrize(
    "path",
    [
        *("cuda.h", "cuda_fp16.h", "cuda_bf16.hpp", "cuda_runtime.h", "mma.h", "nv/target", "cooperative_groups.h"),
        *("cuda/std/execute/x.h", "cub/block/block_reduce.cuh", "curand_kernel.h", "tvm/ffi/tvm_ffi.h", "npy.h"),
        *("cooperative_groups/details/reduce.h", "executed/tensor.h", "dlfcn.h", "bits/c++config.h", "my_cublas.h"),
    ],
)
def test_other_headers(path: str):
    assert rules.library_of_header(path) is None


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("cublasGemmEx", "cuBLAS"),
        ("cublasLtMatmul", "cuBLAS"),
        ("cudnnConvolutionForward", "cuDNN"),
        ("ncclAllReduce", "NCCL"),
        ("nvrtcCompileProgram", "NVRTC"),
        ("PyObject_Call", "Python"),
        ("_ZN2at4_ops6matmul4callERKNS_6TensorES4_", "PyTorch"),
        ("_ZNK3c1010TensorImpl5sizesEv", "PyTorch"),
    ],
)
def test_library_functions(name: str, library: str):
    assert rules.library_of_function(name) == library


@pytest.mark.parametrize(
    "name", ["cublas_like_gemm", "cudaMalloc", "cuTensorMapEncodeTiled", "_ZN3att3fooEv", "printf"]
)
def test_other_functions(name: str):
    assert rules.library_of_function(name) is None


def test_kernels_of_a_library():
    assert rules.library_of_kernel("_ZN7cutlass13device_kernelIN4cute5tupleEEEvT_") == "CUTLASS"
    assert rules.library_of_kernel("_ZN3cub17CUB_300000_SM_90018DeviceReduceKernelEv") == "CUB device algorithms"
    assert rules.library_of_kernel("_Z6kernelIN3cub11BlockReduceEEvT_") is None
    assert rules.library_of_kernel("_ZN32_GLOBAL__N__ptxbench_9_kernel_cu6kernelEPf") is None
    assert rules.library_of_kernel("gemm") is None
    # PyTorch's own are in at::native; ``at`` alone is anybody's short name for attention.
    assert rules.library_of_kernel("_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi") == "PyTorch"
    assert rules.library_of_kernel("_ZN2at9attentionEPf") is None


def test_only_libraries_of_functions_are_excluded_at_any_depth():
    assert rules.has_functions("cuBLAS")
    assert not rules.has_functions("Thrust")


def test_no_rule_has_two_owners():
    titles = [library.title for library in rules.LIBRARIES]
    assert len(set(titles)) == len(titles)
    names = [name for library in rules.LIBRARIES for name in library.namespaces]
    assert len(set(names)) == len(names)

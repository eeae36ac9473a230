"""A CUDA runtime without a device: every call succeeds and does nothing."""


class _Handle:
    reserved = b""


def _succeeds(*_):
    return (0,)


cudaSetDevice = cudaFree = cudaMemsetAsync = cudaDeviceSynchronize = cudaMemcpy = _succeeds  # noqa: N816
cudaIpcMemHandle_t = _Handle  # noqa: N816
cudaIpcMemLazyEnablePeerAccess = 1  # noqa: N816


def cudaMalloc(_):  # noqa: N802
    return 0, 4096


def cudaIpcOpenMemHandle(*_):  # noqa: N802
    return 0, 4096

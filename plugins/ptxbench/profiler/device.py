"""What device this is. ``device_present`` costs no CUDA context; ``describe_device`` runs in the oracle."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from ptxbench.errors import InfrastructureError
from ptxbench.records import DeviceIdentity

_DRIVER_FILES = (Path("/sys/module/nvidia/version"), Path("/proc/driver/nvidia/version"))


def device_present() -> bool:
    """Whether the CUDA driver loads and reports at least one device."""
    return device_count() > 0


def device_count() -> int:
    """How many devices the CUDA driver reports; 0 where there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    told = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if told else 0


def driver_version() -> str:
    """Version of the kernel driver, for example ``580.159.04``, or ``unknown``."""
    for path in _DRIVER_FILES:
        try:
            found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", path.read_text())
        except OSError:
            continue
        if found:
            return found[1]
    return "unknown"


def device_uuid() -> str:
    """UUID of device 0 of this process, as NVML and CUDA_VISIBLE_DEVICES write that of a whole GPU."""
    import torch

    uuid = str(torch.cuda.get_device_properties(0).uuid)
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def describe_device() -> DeviceIdentity:
    """Identity and ceilings of device 0 of this process. Raises InfrastructureError("no_device")."""
    import torch

    if not torch.cuda.is_available():
        raise InfrastructureError("no_device", "expected a CUDA device that torch can use, found none")
    from cuda.bindings import driver

    properties = torch.cuda.get_device_properties(0)
    attribute = driver.CUdevice_attribute

    def read(name: str) -> int:
        code, value = driver.cuDeviceGetAttribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), 0)
        if int(code) != 0:
            raise InfrastructureError("no_device", f"the driver does not tell {name}: {code.name}")
        return int(value)

    # Both clocks are in kHz; HBM moves two words per clock (CUDA driver API, device attributes).
    bandwidth = read("GLOBAL_MEMORY_BUS_WIDTH") // 8 * read("MEMORY_CLOCK_RATE") * 1000 * 2
    return DeviceIdentity(
        name=properties.name,
        compute_capability=(properties.major, properties.minor),
        sm_count=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        memory_bytes=properties.total_memory,
        max_sm_clock_mhz=read("CLOCK_RATE") // 1000,
        memory_bandwidth_bytes_per_s=bandwidth,
        driver=driver_version(),
        cuda_runtime=str(torch.version.cuda),
    )

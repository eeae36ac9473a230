// A CUPTI that records nothing, so that the sandbox's program starts where there is no device.
#include <chrono>
#include <cstddef>
#include <cstdint>

extern "C" {
int cuptiActivityRegisterCallbacks(void*, void*) { return 0; }
int cuptiActivityEnable(int) { return 0; }
int cuptiActivityFlushAll(uint32_t) { return 0; }
int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
    *dropped = 0;
    return 0;
}
int cuptiGetTimestamp(uint64_t* now) {
    *now = std::chrono::steady_clock::now().time_since_epoch().count();
    return 0;
}
int cuptiSubscribe(void**, void*, void*) { return 0; }
int cuptiEnableCallback(uint32_t, void*, int, uint32_t) { return 0; }
}

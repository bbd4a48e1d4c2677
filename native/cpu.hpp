// Which SIMD levels this machine can run, and the one in use.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "byte_kernels.hpp"
#include "kernels.hpp"

namespace weft {

struct Level {
    const char* name;
    const Kernels* kernels;
    const ByteKernels* bytes;
};

// WEFT_SIMD names a level that does not exist or that this machine cannot run.
struct UnsupportedLevel : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The compiled levels that the processor and the operating system support, best last.
const std::vector<Level>& supported_levels();

// The level of the environment variable WEFT_SIMD, or the best one. Settled by the first call that succeeds.
const Level& active_level();

// The named level; throws UnsupportedLevel.
const Level& find_level(const std::string& name);

}  // namespace weft

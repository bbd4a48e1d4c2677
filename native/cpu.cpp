#include "cpu.hpp"

#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace weft {
namespace {

#if defined(WEFT_HAVE_AVX2)

struct Registers {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
    Registers r;
    __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
    return r;
}

// Which registers the operating system saves when it switches threads (XCR0).
uint64_t saved_state() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t{high} << 32) | low;
}

constexpr uint32_t bit(int n) { return uint32_t{1} << n; }
constexpr bool has(uint64_t set, uint64_t wanted) { return (set & wanted) == wanted; }

struct X86 {
    bool avx2 = false, avx512 = false, vnni = false;
};

X86 detect() {
    constexpr uint32_t fma = bit(12), osxsave = bit(27), avx = bit(28), f16c = bit(29);            // leaf 1 ecx
    constexpr uint32_t avx2 = bit(5), f = bit(16), dq = bit(17), bw = bit(30), vl = bit(31);       // leaf 7 ebx
    constexpr uint32_t avx512_vnni = bit(11);                                                       // leaf 7 ecx
    constexpr uint64_t ymm_saved = 0x06, zmm_saved = 0xe6;                                         // XCR0
    X86 found;
    if (!has(cpuid(1, 0).ecx, osxsave | avx | fma | f16c)) return found;
    const uint64_t state = saved_state();
    const uint32_t features = cpuid(7, 0).ebx;
    found.avx2 = has(features, avx2) && has(state, ymm_saved);
    found.avx512 = found.avx2 && has(features, f | dq | bw | vl) && has(state, zmm_saved);
    found.vnni = found.avx512 && has(cpuid(7, 0).ecx, avx512_vnni);
    return found;
}

#endif

#if defined(WEFT_HAVE_NEON)

// Whether bytes are multiplied in fours (ARMv8.2's dot product): where every machine that this is compiled for can, as Apple's, the
// compiler knows; Linux tells; elsewhere nobody is asked.
bool has_dot_product() {
#if defined(__ARM_FEATURE_DOTPROD)
    return true;
#elif defined(__linux__)
    constexpr unsigned long asimd_dot_product = 1ul << 20;  // HWCAP_ASIMDDP, which older headers do not have
    return (getauxval(AT_HWCAP) & asimd_dot_product) != 0;
#else
    return false;
#endif
}

#endif

std::vector<Level> detect_levels() {
    std::vector<Level> levels{{"baseline", &kBaselineKernels, &kBaselineBytes}};
#if defined(WEFT_HAVE_AVX2)
    const X86 x86 = detect();
    if (x86.avx2) levels.push_back({"avx2", &kAvx2Kernels, &kAvx2Bytes});
#if defined(WEFT_HAVE_AVX512)
    if (x86.avx512) levels.push_back({"avx512", &kAvx512Kernels, &kAvx2Bytes});
#if defined(WEFT_HAVE_VNNI)
    static const ByteKernels vnni = vnni_bytes(kAvx2Bytes);
    if (x86.vnni) levels.push_back({"avx512vnni", &kAvx512Kernels, &vnni});
#endif
#endif
#endif
#if defined(WEFT_HAVE_NEON)
    static const ByteKernels neon = neon_bytes(kBaselineBytes), dot = neon_dot_bytes(neon);
    levels.push_back({"neon", &kNeonKernels, &neon});  // part of every AArch64
    if (has_dot_product()) levels.push_back({"neondot", &kNeonKernels, &dot});
#endif
    return levels;
}

const Level& choose_level() {
    const char* wanted = std::getenv("WEFT_SIMD");
    if (wanted == nullptr || *wanted == '\0') return supported_levels().back();
    return find_level(wanted);
}

}  // namespace

const std::vector<Level>& supported_levels() {
    static const std::vector<Level> levels = detect_levels();
    return levels;
}

const Level& find_level(const std::string& name) {
    std::string supported;
    for (const Level& level : supported_levels()) {
        if (name == level.name) return level;
        supported += supported.empty() ? level.name : std::string(", ") + level.name;
    }
    throw UnsupportedLevel("WEFT_SIMD is '" + name + "', but this machine and build support only: " + supported +
                           ". Unset WEFT_SIMD to use the best of them.");
}

const Level& active_level() {
    static const Level& level = choose_level();  // a throw leaves it unset, so the next call tries again
    return level;
}

}  // namespace weft

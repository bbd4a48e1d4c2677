// A vector of WEFT_LANES floats. The including file names its level and its shape:
//
//   #define WEFT_LEVEL avx2        the namespace, so that no two levels share a symbol
//   #define WEFT_LANES 8           floats per vector
//
// With GCC and Clang the lanes are a vector type, which the compiler maps to registers of any width: 16 lanes
// compile, and are tested, on machines without AVX-512. Elsewhere (and with WEFT_PLAIN_LANES) they are an array.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if defined(__GNUC__) && !defined(WEFT_PLAIN_LANES)
#define WEFT_VECTOR_TYPES 1
#endif

#if defined(__GNUC__)
#define WEFT_INLINE inline __attribute__((always_inline))
#else
#define WEFT_INLINE __forceinline
#endif

#if defined(__clang__)
#define WEFT_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define WEFT_UNROLL _Pragma("GCC unroll 16")
#else
#define WEFT_UNROLL
#endif

namespace weft::WEFT_LEVEL {

constexpr int kLanes = WEFT_LANES;

#if defined(WEFT_VECTOR_TYPES)

typedef float Vec __attribute__((vector_size(4 * WEFT_LANES)));

WEFT_INLINE Vec broadcast(float x) { return x - Vec{}; }
WEFT_INLINE Vec multiply_add(Vec a, Vec b, Vec sum) { return sum + a * b; }

// The greater and the lesser; `old` where they are equal or x is NaN, so a NaN is never selected.
WEFT_INLINE Vec greater(Vec x, Vec old) { return x > old ? x : old; }
WEFT_INLINE Vec lesser(Vec x, Vec old) { return x < old ? x : old; }
// Where x > than: yes, elsewhere: no.
WEFT_INLINE Vec where_greater(Vec x, Vec than, Vec yes, Vec no) { return x > than ? yes : no; }

#else

struct Vec {
    float lane[WEFT_LANES];
};

template <class Operation>
WEFT_INLINE Vec each_lane(Operation operation) {
    Vec result;
    for (int i = 0; i < kLanes; ++i) result.lane[i] = operation(i);
    return result;
}

WEFT_INLINE Vec broadcast(float x) {
    return each_lane([&](int) { return x; });
}
WEFT_INLINE Vec operator+(const Vec& a, const Vec& b) {
    return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
WEFT_INLINE Vec multiply_add(const Vec& a, const Vec& b, const Vec& sum) {
    return each_lane([&](int i) { return sum.lane[i] + a.lane[i] * b.lane[i]; });
}
WEFT_INLINE Vec greater(const Vec& x, const Vec& old) {
    return each_lane([&](int i) { return x.lane[i] > old.lane[i] ? x.lane[i] : old.lane[i]; });
}
WEFT_INLINE Vec lesser(const Vec& x, const Vec& old) {
    return each_lane([&](int i) { return x.lane[i] < old.lane[i] ? x.lane[i] : old.lane[i]; });
}
WEFT_INLINE Vec where_greater(const Vec& x, const Vec& than, const Vec& yes, const Vec& no) {
    return each_lane([&](int i) { return x.lane[i] > than.lane[i] ? yes.lane[i] : no.lane[i]; });
}

#endif

// A hint: any address will do, even one beyond the end of an array.
WEFT_INLINE void prefetch(const char* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

WEFT_INLINE Vec load(const float* from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
WEFT_INLINE void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }

// IEEE half to float, exact for every pattern. Subnormal halves are made by subtracting two normal floats,
// so the result does not depend on whether some other library has switched the processor to flush subnormals.
WEFT_INLINE float half_to_float(uint16_t half) {
    const uint32_t magnitude = (half & 0x7fffu) << 13;  // exponent and fraction where a float has them
    const uint32_t exponent = magnitude & 0x0f800000u;
    uint32_t bits;
    if (exponent == 0x0f800000u) {
        bits = magnitude + 0x70000000u;  // infinity and NaN: the float's exponent is all ones too
    } else if (exponent == 0) {
        bits = magnitude + 0x38800000u;  // 2^-14 · (1 + fraction), then take the 2^-14 away again
        float shifted;
        std::memcpy(&shifted, &bits, 4);
        shifted -= 0x1p-14f;
        std::memcpy(&bits, &shifted, 4);
    } else {
        bits = magnitude + 0x38000000u;  // bias 15 becomes bias 127
    }
    bits |= (half & 0x8000u) << 16;
    float result;
    std::memcpy(&result, &bits, 4);
    return result;
}

// Eight halves at a time with the processor's own conversion, or the same by vector arithmetic.
WEFT_INLINE void convert_eight_halves(const uint16_t* from, float* to) {
#if defined(__F16C__)
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__ARM_NEON)
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(from));
    vst1q_f32(to, vcvt_f32_f16(vget_low_f16(halves)));
    vst1q_f32(to + 4, vcvt_f32_f16(vget_high_f16(halves)));
#elif defined(WEFT_VECTOR_TYPES)
    typedef uint16_t Halves __attribute__((vector_size(8)));
    typedef uint32_t Bits __attribute__((vector_size(16)));
    typedef int32_t Signed __attribute__((vector_size(16)));
    typedef float Floats __attribute__((vector_size(16)));
    for (int i = 0; i < 8; i += 4) {
        Halves halves;
        std::memcpy(&halves, from + i, sizeof halves);
        const Bits half = __builtin_convertvector(halves, Bits);
        const Bits magnitude = (half & 0x7fffu) << 13;
        // All ones where true. Signed, because SSE2 compares only signed integers in one step.
        const Bits special = Bits(Signed(magnitude) >= 0x0f800000);
        const Bits small = Bits(Signed(magnitude) < 0x00800000);
        const Bits normal = magnitude + 0x38000000u + (special & 0x38000000u);
        const Bits subnormal = Bits(Floats(magnitude + 0x38800000u) - 0x1p-14f);
        const Bits bits = (small & subnormal) | (~small & normal) | (half & 0x8000u) << 16;
        std::memcpy(to + i, &bits, sizeof bits);
    }
#else
    for (int i = 0; i < 8; ++i) to[i] = half_to_float(from[i]);
#endif
}

WEFT_INLINE void convert_halves(const uint16_t* from, int64_t count, float* to) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) convert_eight_halves(from + i, to + i);
    for (; i < count; ++i) to[i] = half_to_float(from[i]);
}

}  // namespace weft::WEFT_LEVEL

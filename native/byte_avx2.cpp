// The byte kernels with AVX2. vpmaddubsw multiplies 32 pairs of bytes and adds neighbours into 16 bits; with the
// query within ±63 a pair cannot saturate (2 · 255 · 63 < 2^15). Sums then wrap around modulo 2^16, which does no harm:
// the final value fits 16 bits, so the wrapped sum is the true one. One widening per row instead of one per step.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "byte_kernels.hpp"

namespace weft::avx2_bytes {
namespace {

// Out of line, and every loop over accumulators unrolled early: else GCC keeps them in memory.
#define WEFT_KERNEL __attribute__((noinline)) static

inline __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline void store(void* to, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }

inline __m256i four_bytes(const uint8_t* from) {
    int word;
    std::memcpy(&word, from, 4);
    return _mm256_set1_epi32(word);
}

// dot products of `Rows` rows with 16 tokens (two vectors of 8) as 32-bit numbers
template <int Rows>
inline void tile(const uint8_t* rows, const QueryPage& page, int first_vector, __m256i (&dot)[Rows][2]) {
    const int8_t* panel = page.panel + first_vector * 32;
    const __m256i bias0 = load(page.bias + first_vector * 16), bias1 = load(page.bias + (first_vector + 1) * 16);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        dot[r][0] = bias0;
        dot[r][1] = bias1;
    }
    for (int64_t group = 0; group < page.dim / 4; ++group) {
        const __m256i q0 = load(panel + group * kPage * 4), q1 = load(panel + group * kPage * 4 + 32);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const __m256i u = four_bytes(rows + r * page.dim + group * 4);
            dot[r][0] = _mm256_add_epi16(dot[r][0], _mm256_maddubs_epi16(u, q0));
            dot[r][1] = _mm256_add_epi16(dot[r][1], _mm256_maddubs_epi16(u, q1));
        }
    }
    // The even and the odd pairs of coordinates of a token lie side by side; each half fits 16 bits, as does their sum.
    const __m256i one = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        dot[r][0] = _mm256_madd_epi16(dot[r][0], one);
        dot[r][1] = _mm256_madd_epi16(dot[r][1], one);
    }
}

template <int Rows>
WEFT_KERNEL void maxima_tile(const uint8_t* rows, const QueryPage& page, int first_vector, int32_t* best) {
    __m256i dot[Rows][2];
    tile<Rows>(rows, page, first_vector, dot);
#pragma GCC unroll 8
    for (int v = 0; v < 2; ++v) {
        __m256i top = load(best + v * 8);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) top = _mm256_max_epi32(top, dot[r][v]);
        store(best + v * 8, top);
    }
}

void maxima(const uint8_t* rows, int64_t count, const QueryPage& page, int32_t* best) {
    for (int i = 0; i < kPage; ++i) best[i] = INT32_MIN;
    for (int vector = 0; vector < 4; vector += 2) {
        int64_t r = 0;
        for (; r + 6 <= count; r += 6) maxima_tile<6>(rows + r * page.dim, page, vector, best + vector * 8);
        for (; r + 3 <= count; r += 3) maxima_tile<3>(rows + r * page.dim, page, vector, best + vector * 8);
        for (; r < count; ++r) maxima_tile<1>(rows + r * page.dim, page, vector, best + vector * 8);
    }
}

template <int Rows>
WEFT_KERNEL void similarity_tile(const uint8_t* rows, const QueryPage& page, int first_vector, uint8_t* out) {
    __m256i dot[Rows][2];
    tile<Rows>(rows, page, first_vector, dot);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        const __m256i words =
            _mm256_packs_epi32(_mm256_srai_epi32(dot[r][0], kRowShift), _mm256_srai_epi32(dot[r][1], kRowShift));
        const __m256i in_order = _mm256_permute4x64_epi64(words, 0xD8);  // packing works within 128-bit halves
        const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(in_order), _mm256_extracti128_si256(in_order, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * kPage), bytes);
    }
}

void similarities(const uint8_t* rows, int64_t count, const QueryPage& page, uint8_t* out) {
    for (int vector = 0; vector < 4; vector += 2) {
        int64_t r = 0;
        for (; r + 4 <= count; r += 4)
            similarity_tile<4>(rows + r * page.dim, page, vector, out + r * kPage + vector * 8);
        for (; r < count; ++r) similarity_tile<1>(rows + r * page.dim, page, vector, out + r * kPage + vector * 8);
    }
}

template <int Blocks>
WEFT_KERNEL void block_tile(const uint8_t* blocks, const QueryPage& page, int token, uint8_t* out) {
    int32_t bias;
    std::memcpy(&bias, page.bias + token * 2, 4);
    __m256i dot[Blocks];
#pragma GCC unroll 8
    for (int b = 0; b < Blocks; ++b) dot[b] = _mm256_set1_epi32(bias);
    const int8_t* q = page.tokens + token * page.dim;
    for (int64_t group = 0; group < page.dim / 4; ++group) {
        const __m256i query = four_bytes(reinterpret_cast<const uint8_t*>(q) + group * 4);
#pragma GCC unroll 8
        for (int b = 0; b < Blocks; ++b) {
            const __m256i u = load(blocks + (b * page.dim + group * 4) * kBlock);
            dot[b] = _mm256_add_epi16(dot[b], _mm256_maddubs_epi16(u, query));
        }
    }
    const __m256i one = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int b = 0; b < Blocks; ++b) {
        const __m256i sum = _mm256_srai_epi32(_mm256_madd_epi16(dot[b], one), kRowShift);
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out + b * kBlock), _mm_packus_epi16(words, words));
    }
}

void block_similarities(const uint8_t* blocks, int64_t count, const QueryPage& page, int token, uint8_t* out) {
    int64_t b = 0;
    for (; b + 8 <= count; b += 8) block_tile<8>(blocks + b * kBlock * page.dim, page, token, out + b * kBlock);
    for (; b + 4 <= count; b += 4) block_tile<4>(blocks + b * kBlock * page.dim, page, token, out + b * kBlock);
    for (; b < count; ++b) block_tile<1>(blocks + b * kBlock * page.dim, page, token, out + b * kBlock);
}

void raise(uint8_t* rows, const int32_t* listed, int64_t count, const uint8_t* row) {
    const __m256i with = load(row);
    for (int64_t l = 0; l < count; ++l) {
        uint8_t* target = rows + int64_t{listed[l]} * kPage;
        store(target, _mm256_max_epu8(load(target), with));
    }
}

void add_sums(const uint8_t* rows, int64_t count, uint32_t* sums) {
    for (int64_t r = 0; r < count; ++r) {
        const __m256i quarters = _mm256_sad_epu8(load(rows + r * kPage), _mm256_setzero_si256());
        const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
        sums[r] += static_cast<uint32_t>(_mm_cvtsi128_si64(halves) + _mm_extract_epi64(halves, 1));
    }
}

}  // namespace
}  // namespace weft::avx2_bytes

const weft::ByteKernels weft::kAvx2Bytes = {weft::avx2_bytes::maxima, weft::avx2_bytes::similarities,
                                            weft::avx2_bytes::block_similarities, weft::avx2_bytes::raise,
                                            weft::avx2_bytes::add_sums};

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

// dot products of `Rows` rows with 8 · `Vectors` tokens as 32-bit numbers
template <int Rows, int Vectors>
inline void tile(const uint8_t* rows, const QueryPage& page, int first_vector, __m256i (&dot)[Rows][Vectors]) {
    const int8_t* panel = page.panel + first_vector * 32;
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
        const __m256i bias = load(page.bias + (first_vector + v) * 16);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) dot[r][v] = bias;
    }
    for (int64_t group = 0; group < page.dim / 4; ++group) {
        __m256i q[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) q[v] = load(panel + group * kPage * 4 + v * 32);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const __m256i u = four_bytes(rows + r * page.dim + group * 4);
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) dot[r][v] = _mm256_add_epi16(dot[r][v], _mm256_maddubs_epi16(u, q[v]));
        }
    }
    // The even and the odd pairs of coordinates of a token lie side by side; each half fits 16 bits, as does their sum.
    const __m256i one = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) dot[r][v] = _mm256_madd_epi16(dot[r][v], one);
}

template <int Rows, int Vectors>
WEFT_KERNEL void maxima_tile(const uint8_t* rows, const QueryPage& page, int first_vector, int32_t* best) {
    __m256i dot[Rows][Vectors];
    tile<Rows, Vectors>(rows, page, first_vector, dot);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
        __m256i top = load(best + v * 8);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) top = _mm256_max_epi32(top, dot[r][v]);
        store(best + v * 8, top);
    }
}

template <int Vectors>
void maxima_of(const uint8_t* rows, int64_t count, const QueryPage& page, int first_vector, int32_t* best) {
    int64_t r = 0;
    for (; r + 6 <= count; r += 6) maxima_tile<6, Vectors>(rows + r * page.dim, page, first_vector, best);
    for (; r + 3 <= count; r += 3) maxima_tile<3, Vectors>(rows + r * page.dim, page, first_vector, best);
    for (; r < count; ++r) maxima_tile<1, Vectors>(rows + r * page.dim, page, first_vector, best);
}

void maxima(const uint8_t* rows, int64_t count, const QueryPage& page, int32_t* best) {
    for (int i = 0; i < kPage; ++i) best[i] = INT32_MIN;
    int lane = 0;
    for (; lane + 8 < page.lanes; lane += 16) maxima_of<2>(rows, count, page, lane / 8, best + lane);
    for (; lane < page.lanes; lane += 8) maxima_of<1>(rows, count, page, lane / 8, best + lane);
}

template <int Rows>
WEFT_KERNEL void similarity_tile(const uint8_t* rows, const QueryPage& page, int first_vector, uint8_t* out) {
    __m256i dot[Rows][2];
    tile<Rows, 2>(rows, page, first_vector, dot);
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
    for (int lane = 0; lane < page.lanes; lane += 16) {
        int64_t r = 0;
        for (; r + 4 <= count; r += 4) similarity_tile<4>(rows + r * page.dim, page, lane / 8, out + r * kPage + lane);
        for (; r < count; ++r) similarity_tile<1>(rows + r * page.dim, page, lane / 8, out + r * kPage + lane);
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

void drain_sums(uint8_t* rows, int64_t count, uint32_t* sums) {
    for (int64_t r = 0; r < count; ++r) {
        const __m256i quarters = _mm256_sad_epu8(load(rows + r * kPage), _mm256_setzero_si256());
        const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
        sums[r] += static_cast<uint32_t>(_mm_cvtsi128_si64(halves) + _mm_extract_epi64(halves, 1));
        store(rows + r * kPage, _mm256_setzero_si256());
    }
}

template <int Bits>
inline __m256i unpack(const uint8_t* packed) {
    if constexpr (Bits == 4) {
        const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(packed)));
        return _mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
    } else {
        const __m256i four = _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(packed)));
        return _mm256_and_si256(_mm256_srlv_epi64(four, _mm256_setr_epi64x(0, 2, 4, 6)), _mm256_set1_epi8(3));
    }
}

template <int Bits>
void expand_bits(const uint8_t* packed, const int8_t* levels, const uint8_t* centroid, int64_t dim, uint8_t* out) {
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
    const __m256i sign = _mm256_set1_epi8(-128);  // bytes from 0 … 255 to −128 … 127 and back, for the saturating addition
    const auto group = [&](const uint8_t* from, const uint8_t* base) {
        const __m256i level = _mm256_shuffle_epi8(table, unpack<Bits>(from));
        return _mm256_xor_si256(_mm256_adds_epi8(_mm256_xor_si256(load(base), sign), level), sign);
    };
    int64_t x = 0;
    for (; x + kGroup <= dim; x += kGroup, packed += 4 * Bits) store(out + x, group(packed, centroid + x));
    if (x < dim) {  // neither read nor write beyond the end of a row
        uint8_t base[kGroup] = {}, whole[kGroup];
        std::memcpy(base, centroid + x, static_cast<size_t>(dim - x));
        store(whole, group(packed, base));
        std::memcpy(out + x, whole, static_cast<size_t>(dim - x));
    }
}

void expand(const uint8_t* packed, int bits, const int8_t* levels, const uint8_t* centroid, int64_t dim, uint8_t* out) {
    if (bits == 4) return expand_bits<4>(packed, levels, centroid, dim, out);
    expand_bits<2>(packed, levels, centroid, dim, out);
}

}  // namespace
}  // namespace weft::avx2_bytes

const weft::ByteKernels weft::kAvx2Bytes = {
    weft::avx2_bytes::maxima, weft::avx2_bytes::similarities, weft::avx2_bytes::block_similarities,
    weft::avx2_bytes::raise,  weft::avx2_bytes::drain_sums,   weft::avx2_bytes::expand};

// The byte kernels that AVX-512 VNNI makes faster: vpdpbusd multiplies 64 pairs of bytes, unsigned by signed, and adds fours into 32
// bits. Nothing saturates; the results are those of the other levels to the last bit.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "byte_kernels.hpp"

namespace weft::vnni_bytes_level {
namespace {

#define WEFT_KERNEL __attribute__((noinline)) static

inline __m512i load(const void* from) { return _mm512_loadu_si512(from); }

inline int word(const void* from) {
    int value;
    std::memcpy(&value, from, 4);
    return value;
}

inline __m512i four_bytes(const void* from) { return _mm512_set1_epi32(word(from)); }

// The sums that a page's bias is given in wrap around 16 bits, and so does what is added to them; the true dot product fits.
inline __m512i bias_of(const QueryPage& page, int vector) {
    const __m512i pairs = load(page.bias + vector * 32);
    return _mm512_add_epi32(_mm512_srai_epi32(pairs, 16), _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16));
}

inline __m512i unwrapped(__m512i sum) { return _mm512_srai_epi32(_mm512_slli_epi32(sum, 16), 16); }

// dot products of `Rows` rows with 16 · `Vectors` tokens
template <int Rows, int Vectors>
inline void tile(const uint8_t* rows, const QueryPage& page, int first_vector, __m512i (&dot)[Rows][Vectors]) {
    const int8_t* panel = page.panel + first_vector * 64;
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) {
        const __m512i bias = bias_of(page, first_vector + v);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) dot[r][v] = bias;
    }
    for (int64_t group = 0; group < page.dim / 4; ++group) {
        __m512i q[Vectors];
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v) q[v] = load(panel + group * kPage * 4 + v * 64);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const __m512i u = four_bytes(rows + r * page.dim + group * 4);
#pragma GCC unroll 16
            for (int v = 0; v < Vectors; ++v) dot[r][v] = _mm512_dpbusd_epi32(dot[r][v], u, q[v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v) dot[r][v] = unwrapped(dot[r][v]);
}

template <int Rows, int Vectors>
WEFT_KERNEL void maxima_tile(const uint8_t* rows, const QueryPage& page, int32_t* best) {
    __m512i dot[Rows][Vectors];
    tile<Rows, Vectors>(rows, page, 0, dot);
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) {
        __m512i top = load(best + v * 16);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) top = _mm512_max_epi32(top, dot[r][v]);
        _mm512_storeu_si512(best + v * 16, top);
    }
}

template <int Vectors>
void maxima_of(const uint8_t* rows, int64_t count, const QueryPage& page, int32_t* best) {
    int64_t r = 0;
    for (; r + 12 <= count; r += 12) maxima_tile<12, Vectors>(rows + r * page.dim, page, best);
    for (; r + 4 <= count; r += 4) maxima_tile<4, Vectors>(rows + r * page.dim, page, best);
    for (; r < count; ++r) maxima_tile<1, Vectors>(rows + r * page.dim, page, best);
}

void maxima(const uint8_t* rows, int64_t count, const QueryPage& page, int32_t* best) {
    if (page.lanes > 16) {
        maxima_of<2>(rows, count, page, best);
    } else {
        maxima_of<1>(rows, count, page, best);
    }
}

template <int Rows, int Vectors>
WEFT_KERNEL void dot_tile(const uint8_t* rows, const QueryPage& page, int16_t* out) {
    __m512i dot[Rows][Vectors];
    tile<Rows, Vectors>(rows, page, 0, dot);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + r * kPage + v * 16), _mm512_cvtepi32_epi16(dot[r][v]));
}

template <int Vectors>
void dots_of(const uint8_t* rows, int64_t count, const QueryPage& page, int16_t* out) {
    int64_t r = 0;
    for (; r + 12 <= count; r += 12) dot_tile<12, Vectors>(rows + r * page.dim, page, out + r * kPage);
    for (; r + 4 <= count; r += 4) dot_tile<4, Vectors>(rows + r * page.dim, page, out + r * kPage);
    for (; r < count; ++r) dot_tile<1, Vectors>(rows + r * page.dim, page, out + r * kPage);
}

void dots(const uint8_t* rows, int64_t count, const QueryPage& page, int16_t* out) {
    if (page.lanes > 16) {
        dots_of<2>(rows, count, page, out);
    } else {
        dots_of<1>(rows, count, page, out);
    }
}

template <int Rows, int Vectors>
WEFT_KERNEL void similarity_tile(const uint8_t* rows, const QueryPage& page, uint8_t* out) {
    __m512i dot[Rows][Vectors];
    tile<Rows, Vectors>(rows, page, 0, dot);
    const __m512i zero = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v) {
            const __m512i shifted = _mm512_max_epi32(_mm512_srai_epi32(dot[r][v], kRowShift), zero);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r * kPage + v * 16), _mm512_cvtusepi32_epi8(shifted));
        }
}

template <int Vectors>
void similarities_of(const uint8_t* rows, int64_t count, const QueryPage& page, uint8_t* out) {
    int64_t r = 0;
    for (; r + 12 <= count; r += 12) similarity_tile<12, Vectors>(rows + r * page.dim, page, out + r * kPage);
    for (; r < count; ++r) similarity_tile<1, Vectors>(rows + r * page.dim, page, out + r * kPage);
}

void similarities(const uint8_t* rows, int64_t count, const QueryPage& page, uint8_t* out) {
    if (page.lanes > 16) {
        similarities_of<2>(rows, count, page, out);
    } else {
        similarities_of<1>(rows, count, page, out);
    }
}

template <int Blocks>
WEFT_KERNEL void block_tile(const uint8_t* blocks, const QueryPage& page, int token, uint8_t* out) {
    const int32_t both = int32_t{page.bias[token * 2]} + page.bias[token * 2 + 1];
    __m256i dot[Blocks];
#pragma GCC unroll 16
    for (int b = 0; b < Blocks; ++b) dot[b] = _mm256_set1_epi32(both);
    const int8_t* q = page.tokens + token * page.dim;
    for (int64_t group = 0; group < page.dim / 4; ++group) {
        const __m256i query = _mm256_set1_epi32(word(q + group * 4));
#pragma GCC unroll 16
        for (int b = 0; b < Blocks; ++b) {
            const uint8_t* u = blocks + (b * page.dim + group * 4) * kBlock;
            dot[b] = _mm256_dpbusd_epi32(dot[b], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(u)), query);
        }
    }
    const __m256i zero = _mm256_setzero_si256();
#pragma GCC unroll 16
    for (int b = 0; b < Blocks; ++b) {
        const __m256i sum = _mm256_srai_epi32(_mm256_slli_epi32(dot[b], 16), 16 + kRowShift);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(out + b * kBlock), _mm256_cvtusepi32_epi8(_mm256_max_epi32(sum, zero)));
    }
}

void block_similarities(const uint8_t* blocks, int64_t count, const QueryPage& page, int token, uint8_t* out) {
    int64_t b = 0;
    for (; b + 8 <= count; b += 8) block_tile<8>(blocks + b * kBlock * page.dim, page, token, out + b * kBlock);
    for (; b + 4 <= count; b += 4) block_tile<4>(blocks + b * kBlock * page.dim, page, token, out + b * kBlock);
    for (; b < count; ++b) block_tile<1>(blocks + b * kBlock * page.dim, page, token, out + b * kBlock);
}

// ---- Building ------------------------------------------------------------------------------------------

// Panels of 16 centroids, (dim / 4, 16, 4) each, in half of the room; behind them −256 · Σ c, for vpdpbusd takes u, not u − 128.
void pack_centroids(const int8_t* centroids, int64_t count, int64_t dim, int16_t* packed) {
    auto* panels = reinterpret_cast<int8_t*>(packed);
    int8_t* sums = panels + count * dim;
    for (int64_t c = 0; c < count; ++c) {
        int32_t sum = 0;
        for (int64_t x = 0; x < dim; ++x) {
            panels[(c / kPanel * dim + x / 4 * 4) * kPanel + c % kPanel * 4 + x % 4] = centroids[c * dim + x];
            sum += centroids[c * dim + x];
        }
        sum *= -256;
        std::memcpy(sums + c * 4, &sum, 4);
    }
}

struct Greatest {
    __m512i value, panel;
};

template <int Rows, int Panels>
WEFT_KERNEL void nearest_tile(const uint8_t* rows, int64_t dim, const int8_t* panels, const int8_t* sums, const int32_t* bias,
                              int first_panel, Greatest* greatest) {
    __m512i dot[Rows][Panels];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_setzero_si512();
    for (int64_t group = 0; group < dim / 4; ++group) {
        __m512i c[Panels];
#pragma GCC unroll 16
        for (int p = 0; p < Panels; ++p) c[p] = load(panels + (p * dim + group * 4) * kPanel);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const __m512i u = four_bytes(rows + r * dim + group * 4);
#pragma GCC unroll 16
            for (int p = 0; p < Panels; ++p) dot[r][p] = _mm512_dpbusd_epi32(dot[r][p], u, c[p]);
        }
    }
#pragma GCC unroll 16
    for (int p = 0; p < Panels; ++p) {
        const __m512i added = _mm512_add_epi32(load(sums + p * kPanel * 4), load(bias + p * kPanel));
        const __m512i number = _mm512_set1_epi32(first_panel + p);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const __m512i value = _mm512_add_epi32(_mm512_slli_epi32(dot[r][p], 1), added);
            const __mmask16 above = _mm512_cmpgt_epi32_mask(value, greatest[r].value);
            greatest[r].value = _mm512_mask_mov_epi32(greatest[r].value, above, value);
            greatest[r].panel = _mm512_mask_mov_epi32(greatest[r].panel, above, number);
        }
    }
}

template <int Panels>
void nearest_panels(const uint8_t* rows, int64_t count, int64_t dim, const int8_t* panels, const int8_t* sums, const int32_t* bias,
                    int first_panel, Greatest* greatest) {
    int64_t r = 0;
    for (; r + 12 <= count; r += 12)
        nearest_tile<12, Panels>(rows + r * dim, dim, panels, sums, bias, first_panel, greatest + r);
    for (; r + 3 <= count; r += 3) nearest_tile<3, Panels>(rows + r * dim, dim, panels, sums, bias, first_panel, greatest + r);
    for (; r < count; ++r) nearest_tile<1, Panels>(rows + r * dim, dim, panels, sums, bias, first_panel, greatest + r);
}

void nearest(const uint8_t* rows, int64_t count, int64_t dim, const int16_t* packed, const int32_t* bias, int64_t centroids, int32_t* of,
             int32_t* value) {
    constexpr int64_t kRows = 96;  // rows and what is known of them stay in cache while all panels pass
    const auto* panels = reinterpret_cast<const int8_t*>(packed);
    const int8_t* sums = panels + centroids * dim;
    const auto count_panels = static_cast<int>(centroids / kPanel);
    Greatest greatest[kRows];
    for (int64_t first = 0; first < count; first += kRows) {
        const int64_t some = first + kRows < count ? kRows : count - first;
        for (int64_t r = 0; r < some; ++r) greatest[r] = {_mm512_set1_epi32(INT32_MIN), _mm512_setzero_si512()};
        int p = 0;
        for (; p + 2 <= count_panels; p += 2)
            nearest_panels<2>(rows + first * dim, some, dim, panels + p * kPanel * dim, sums + p * kPanel * 4, bias + p * kPanel, p,
                              greatest);
        if (p < count_panels)
            nearest_panels<1>(rows + first * dim, some, dim, panels + p * kPanel * dim, sums + p * kPanel * 4, bias + p * kPanel, p,
                              greatest);
        const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for (int64_t r = 0; r < some; ++r) {
            const int32_t top = _mm512_reduce_max_epi32(greatest[r].value);
            const __m512i centroid = _mm512_add_epi32(_mm512_slli_epi32(greatest[r].panel, 4), lanes);
            const __mmask16 equal = _mm512_cmpeq_epi32_mask(greatest[r].value, _mm512_set1_epi32(top));
            of[first + r] = _mm512_mask_reduce_min_epi32(equal, centroid);
            value[first + r] = top;
        }
    }
}

void sketch_numbers(const uint8_t* row, const uint8_t* cell, const int8_t* codebooks, const int32_t* bias, int64_t sub_vectors,
                    uint8_t* numbers) {
    const __m512i lanes = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i centre = _mm512_set1_epi8(-128);
    for (int64_t s = 0; s < sub_vectors; ++s) {
        const __m128i difference = _mm_sub_epi16(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(word(row + s * kSubVector))),
                                                 _mm_cvtepu8_epi16(_mm_cvtsi32_si128(word(cell + s * kSubVector))));
        const __m128i held = _mm_max_epi16(_mm_min_epi16(difference, _mm_set1_epi16(127)), _mm_set1_epi16(-127));
        const __m128i bytes = _mm_packus_epi16(_mm_add_epi16(held, _mm_set1_epi16(128)), _mm_setzero_si128());
        const __m512i entries = load(codebooks + s * kEntries * kSubVector);
        // Σ (r + 128) · e − Σ 128 · e; the second with 128 as unsigned bytes, too
        const __m512i more = _mm512_dpbusd_epi32(_mm512_setzero_si512(), centre, entries);
        const __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_broadcastd_epi32(bytes), entries);
        const __m512i value = _mm512_add_epi32(_mm512_slli_epi32(_mm512_sub_epi32(dot, more), 1), load(bias + s * kEntries));
        // The number of the entry in the low bits, the first one the greatest: one maximum finds both.
        const int32_t top = _mm512_reduce_max_epi32(_mm512_or_epi32(_mm512_slli_epi32(value, 4), lanes));
        numbers[s] = static_cast<uint8_t>(15 - (top & 15));
    }
}

}  // namespace
}  // namespace weft::vnni_bytes_level

weft::ByteKernels weft::vnni_bytes(const ByteKernels& others) {
    ByteKernels kernels = others;
    kernels.maxima = vnni_bytes_level::maxima;
    kernels.dots = vnni_bytes_level::dots;
    kernels.similarities = vnni_bytes_level::similarities;
    kernels.block_similarities = vnni_bytes_level::block_similarities;
    kernels.pack_centroids = vnni_bytes_level::pack_centroids;
    kernels.nearest = vnni_bytes_level::nearest;
    kernels.sketch_numbers = vnni_bytes_level::sketch_numbers;
    return kernels;
}

// The byte kernels that NEON's dot product (ARMv8.2, sdot) makes faster: it multiplies 16 pairs of signed bytes and adds fours into
// 32 bits. A code less 128 is its byte with the top bit turned, so both sides are signed and no bias is needed; and a quarter of a
// register can meet all of another, so four coordinates of a row need no broadcast. Nothing saturates; the results are those of the
// other levels to the last bit.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "byte_kernels.hpp"

namespace weft::neon_dot_level {
namespace {

#define WEFT_KERNEL __attribute__((noinline)) static

constexpr int kLane = 4;               // bytes that one lane of a dot product takes
constexpr int kTokens = 4;             // query tokens, or centroids, of a vector
constexpr int64_t kStep = 4 * kLane;   // coordinates of a row that are loaded at once

inline int8x16_t centred(uint8x16_t codes) { return vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(128))); }  // u − 128

// The last coordinates of a row, fewer than 16, and zeros
inline int8x16_t rest_of(const void* from, int64_t count) {
    int8_t bytes[kStep] = {};
    std::memcpy(bytes, from, static_cast<size_t>(count));
    return vld1q_s8(bytes);
}

// Four coordinates of all rows with those of all vectors: `panel` has them side by side
template <int Lane, int Rows, int Vectors>
inline void add_products(const int8x16_t (&rows)[Rows], const int8_t* panel, int32x4_t (&dot)[Rows][Vectors]) {
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) {
        const int8x16_t q = vld1q_s8(panel + v * kStep);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) dot[r][v] = vdotq_laneq_s32(dot[r][v], q, rows[r], Lane);
    }
}

// Dot products of `Rows` rows with 4 · `Vectors` columns of a panel, (dim / 4, columns, 4); `stride`: bytes of its four coordinates
template <int Rows, int Vectors>
inline void tile(const uint8_t* rows, int64_t dim, const int8_t* panel, int64_t stride, int32x4_t (&dot)[Rows][Vectors]) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v) dot[r][v] = vdupq_n_s32(0);
    int8x16_t u[Rows];
    int64_t x = 0;
    for (; x + kStep <= dim; x += kStep, panel += 4 * stride) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) u[r] = centred(vld1q_u8(rows + r * dim + x));
        add_products<0>(u, panel, dot);
        add_products<1>(u, panel + stride, dot);
        add_products<2>(u, panel + 2 * stride, dot);
        add_products<3>(u, panel + 3 * stride, dot);
    }
    for (; x < dim; x += kLane, panel += stride) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            uint32_t word;
            std::memcpy(&word, rows + r * dim + x, kLane);
            u[r] = centred(vreinterpretq_u8_u32(vdupq_n_u32(word)));
        }
        add_products<0>(u, panel, dot);
    }
}

constexpr int kRows = 4, kVectors = 4;  // of a tile: 16 accumulators, 4 rows and a query in 32 registers
constexpr int kColumns = kVectors * kTokens;
constexpr int64_t kPanelStride = kPage * kLane;

template <int Rows>
WEFT_KERNEL void maxima_tile(const uint8_t* rows, const QueryPage& page, int lane, int32_t* best) {
    int32x4_t dot[Rows][kVectors];
    tile(rows, page.dim, page.panel + lane * kLane, kPanelStride, dot);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
        int32x4_t top = vld1q_s32(best + v * kTokens);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) top = vmaxq_s32(top, dot[r][v]);
        vst1q_s32(best + v * kTokens, top);
    }
}

void maxima(const uint8_t* rows, int64_t count, const QueryPage& page, int32_t* best) {
    for (int lane = 0; lane < page.lanes; lane += kColumns) {
        int64_t r = 0;
        for (; r + kRows <= count; r += kRows) maxima_tile<kRows>(rows + r * page.dim, page, lane, best + lane);
        for (; r < count; ++r) maxima_tile<1>(rows + r * page.dim, page, lane, best + lane);
    }
}

template <int Rows>
WEFT_KERNEL void dot_tile(const uint8_t* rows, const QueryPage& page, int lane, int16_t* out) {
    int32x4_t dot[Rows][kVectors];
    tile(rows, page.dim, page.panel + lane * kLane, kPanelStride, dot);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; v += 2)
            vst1q_s16(out + r * kPage + v * kTokens, vcombine_s16(vmovn_s32(dot[r][v]), vmovn_s32(dot[r][v + 1])));
}

void dots(const uint8_t* rows, int64_t count, const QueryPage& page, int16_t* out) {
    for (int lane = 0; lane < kPage; lane += kColumns) {
        int64_t r = 0;
        for (; r + kRows <= count; r += kRows) dot_tile<kRows>(rows + r * page.dim, page, lane, out + r * kPage + lane);
        for (; r < count; ++r) dot_tile<1>(rows + r * page.dim, page, lane, out + r * kPage + lane);
    }
}

// dot >> 7 of 8 columns, within 0 … 255
inline uint8x8_t similarities_of(int32x4_t low, int32x4_t high) {
    return vqmovun_s16(vcombine_s16(vqshrn_n_s32(low, kRowShift), vqshrn_n_s32(high, kRowShift)));
}

template <int Rows>
WEFT_KERNEL void similarity_tile(const uint8_t* rows, const QueryPage& page, int lane, uint8_t* out) {
    int32x4_t dot[Rows][kVectors];
    tile(rows, page.dim, page.panel + lane * kLane, kPanelStride, dot);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; v += 2) vst1_u8(out + r * kPage + v * kTokens, similarities_of(dot[r][v], dot[r][v + 1]));
}

void similarities(const uint8_t* rows, int64_t count, const QueryPage& page, uint8_t* out) {
    for (int lane = 0; lane < page.lanes; lane += kColumns) {
        int64_t r = 0;
        for (; r + kRows <= count; r += kRows) similarity_tile<kRows>(rows + r * page.dim, page, lane, out + r * kPage + lane);
        for (; r < count; ++r) similarity_tile<1>(rows + r * page.dim, page, lane, out + r * kPage + lane);
    }
}

// Four coordinates of one token with those of 8 vectors, of each block
template <int Lane, int Blocks>
inline void add_blocks(const uint8_t* blocks, int64_t dim, int8x16_t query, int32x4_t (&dot)[Blocks][2]) {
#pragma GCC unroll 16
    for (int b = 0; b < Blocks; ++b)
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const int8x16_t u = centred(vld1q_u8(blocks + b * kBlock * dim + half * kStep));
            dot[b][half] = vdotq_laneq_s32(dot[b][half], u, query, Lane);
        }
}

template <int Blocks>
WEFT_KERNEL void block_tile(const uint8_t* blocks, const QueryPage& page, int token, uint8_t* out) {
    constexpr int64_t kStride = kBlock * kLane;
    int32x4_t dot[Blocks][2];
#pragma GCC unroll 16
    for (int b = 0; b < Blocks; ++b) dot[b][0] = dot[b][1] = vdupq_n_s32(0);
    const int8_t* q = page.tokens + token * page.dim;
    const uint8_t* u = blocks;
    int64_t x = 0;
    for (; x + kStep <= page.dim; x += kStep, u += 4 * kStride) {
        const int8x16_t query = vld1q_s8(q + x);
        add_blocks<0>(u, page.dim, query, dot);
        add_blocks<1>(u + kStride, page.dim, query, dot);
        add_blocks<2>(u + 2 * kStride, page.dim, query, dot);
        add_blocks<3>(u + 3 * kStride, page.dim, query, dot);
    }
    for (; x < page.dim; x += kLane, u += kStride) add_blocks<0>(u, page.dim, rest_of(q + x, kLane), dot);
#pragma GCC unroll 16
    for (int b = 0; b < Blocks; ++b) vst1_u8(out + b * kBlock, similarities_of(dot[b][0], dot[b][1]));
}

void block_similarities(const uint8_t* blocks, int64_t count, const QueryPage& page, int token, uint8_t* out) {
    constexpr int kBlocks = 4;
    int64_t b = 0;
    for (; b + kBlocks <= count; b += kBlocks) block_tile<kBlocks>(blocks + b * kBlock * page.dim, page, token, out + b * kBlock);
    for (; b < count; ++b) block_tile<1>(blocks + b * kBlock * page.dim, page, token, out + b * kBlock);
}

// ---- Building ------------------------------------------------------------------------------------------

// Panels of 16 centroids, (dim / 4, 16, 4) each, in half of the room.
void pack_centroids(const int8_t* centroids, int64_t count, int64_t dim, int16_t* packed) {
    auto* panels = reinterpret_cast<int8_t*>(packed);
    for (int64_t c = 0; c < count; ++c)
        for (int64_t x = 0; x < dim; x += kLane)
            std::memcpy(panels + (c / kPanel * dim + x) * kPanel + c % kPanel * kLane, centroids + c * dim + x, kLane);
}

// The greatest value in each of a panel's columns, and the centroid that has it
struct Greatest {
    int32x4_t value[kVectors], centroid[kVectors];
};

template <int Rows>
WEFT_KERNEL void nearest_tile(const uint8_t* rows, int64_t dim, const int8_t* panel, const int32_t* bias, int32_t first,
                              Greatest* greatest) {
    int32x4_t dot[Rows][kVectors];
    tile(rows, dim, panel, kPanel * kLane, dot);
    const int32_t numbers[kTokens] = {0, 1, 2, 3};
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
        const int32x4_t added = vld1q_s32(bias + v * kTokens);
        const int32x4_t centroid = vaddq_s32(vld1q_s32(numbers), vdupq_n_s32(first + v * kTokens));
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const int32x4_t value = vaddq_s32(vshlq_n_s32(dot[r][v], 1), added);
            const uint32x4_t greater = vcgtq_s32(value, greatest[r].value[v]);
            greatest[r].value[v] = vbslq_s32(greater, value, greatest[r].value[v]);
            greatest[r].centroid[v] = vbslq_s32(greater, centroid, greatest[r].centroid[v]);
        }
    }
}

void nearest(const uint8_t* rows, int64_t count, int64_t dim, const int16_t* packed, const int32_t* bias, int64_t centroids, int32_t* of,
             int32_t* value) {
    static_assert(kPanel == kColumns, "a tile takes a panel");
    constexpr int64_t kSome = 32;  // rows that stay in cache, with what is known of them, while all panels pass
    const auto* panels = reinterpret_cast<const int8_t*>(packed);
    Greatest greatest[kSome];
    for (int64_t first = 0; first < count; first += kSome) {
        const int64_t some = first + kSome < count ? kSome : count - first;
        for (int64_t r = 0; r < some; ++r)
            for (int v = 0; v < kVectors; ++v)
                greatest[r].value[v] = vdupq_n_s32(INT32_MIN), greatest[r].centroid[v] = vdupq_n_s32(0);
        for (int64_t c = 0; c < centroids; c += kPanel) {
            const auto number = static_cast<int32_t>(c);
            int64_t r = 0;
            for (; r + kRows <= some; r += kRows)
                nearest_tile<kRows>(rows + (first + r) * dim, dim, panels + c * dim, bias + c, number, greatest + r);
            for (; r < some; ++r) nearest_tile<1>(rows + (first + r) * dim, dim, panels + c * dim, bias + c, number, greatest + r);
        }
        for (int64_t r = 0; r < some; ++r) {
            int32x4_t top = greatest[r].value[0];
            for (int v = 1; v < kVectors; ++v) top = vmaxq_s32(top, greatest[r].value[v]);
            value[first + r] = vmaxvq_s32(top);
            const int32x4_t all = vdupq_n_s32(value[first + r]), none = vdupq_n_s32(INT32_MAX);
            int32x4_t least = none;  // the first of equals
            for (int v = 0; v < kVectors; ++v)
                least = vminq_s32(least, vbslq_s32(vceqq_s32(greatest[r].value[v], all), greatest[r].centroid[v], none));
            of[first + r] = vminvq_s32(least);
        }
    }
}

// Which entry of one codebook is nearest to a quarter of `residual`. The number of the entry is in the low bits, the first one the
// greatest: one maximum finds both.
template <int Lane>
inline uint8_t nearest_entry(int8x16_t residual, const int8_t* codebook, const int32_t* bias) {
    const int32_t numbers[kTokens] = {15, 14, 13, 12};
    int32x4_t top = vdupq_n_s32(INT32_MIN);
    for (int v = 0; v < kEntries / kTokens; ++v) {
        const int32x4_t dot = vdotq_laneq_s32(vdupq_n_s32(0), vld1q_s8(codebook + v * kStep), residual, Lane);
        const int32x4_t value = vaddq_s32(vshlq_n_s32(dot, 1), vld1q_s32(bias + v * kTokens));
        const int32x4_t number = vsubq_s32(vld1q_s32(numbers), vdupq_n_s32(v * kTokens));
        top = vmaxq_s32(top, vorrq_s32(vshlq_n_s32(value, 4), number));
    }
    return static_cast<uint8_t>(15 - (vmaxvq_s32(top) & 15));
}

void sketch_numbers(const uint8_t* row, const uint8_t* cell, const int8_t* codebooks, const int32_t* bias, int64_t sub_vectors,
                    uint8_t* numbers) {
    static_assert(kSubVector == kLane, "a lane takes a sub-vector");
    constexpr int kCodebook = kEntries * kSubVector;
    const auto residual_of = [](int8x16_t token, int8x16_t centre) { return vmaxq_s8(vqsubq_s8(token, centre), vdupq_n_s8(-127)); };
    int64_t s = 0;
    for (; s + 4 <= sub_vectors; s += 4) {
        const int8x16_t token = centred(vld1q_u8(row + s * kSubVector)), centre = centred(vld1q_u8(cell + s * kSubVector));
        const int8x16_t residual = residual_of(token, centre);
        numbers[s] = nearest_entry<0>(residual, codebooks + s * kCodebook, bias + s * kEntries);
        numbers[s + 1] = nearest_entry<1>(residual, codebooks + (s + 1) * kCodebook, bias + (s + 1) * kEntries);
        numbers[s + 2] = nearest_entry<2>(residual, codebooks + (s + 2) * kCodebook, bias + (s + 2) * kEntries);
        numbers[s + 3] = nearest_entry<3>(residual, codebooks + (s + 3) * kCodebook, bias + (s + 3) * kEntries);
    }
    for (; s < sub_vectors; ++s) {
        const int8x16_t token = centred(vreinterpretq_u8_s8(rest_of(row + s * kSubVector, kSubVector)));
        const int8x16_t centre = centred(vreinterpretq_u8_s8(rest_of(cell + s * kSubVector, kSubVector)));
        numbers[s] = nearest_entry<0>(residual_of(token, centre), codebooks + s * kCodebook, bias + s * kEntries);
    }
}

}  // namespace
}  // namespace weft::neon_dot_level

weft::ByteKernels weft::neon_dot_bytes(const ByteKernels& others) {
    ByteKernels kernels = others;
    kernels.maxima = neon_dot_level::maxima;
    kernels.dots = neon_dot_level::dots;
    kernels.similarities = neon_dot_level::similarities;
    kernels.block_similarities = neon_dot_level::block_similarities;
    kernels.pack_centroids = neon_dot_level::pack_centroids;
    kernels.nearest = neon_dot_level::nearest;
    kernels.sketch_numbers = neon_dot_level::sketch_numbers;
    return kernels;
}

// The byte kernels with NEON, which every AArch64 has: all but the dot products of bytes, which byte_neon_dot.cpp adds where the
// processor multiplies bytes in fours. The results are those of the other levels to the last bit.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "byte_kernels.hpp"

namespace weft::neon_bytes_level {
namespace {

// A row of 32 bytes
struct Row {
    uint8x16_t low, high;
};

inline Row load(const uint8_t* from) { return {vld1q_u8(from), vld1q_u8(from + 16)}; }
inline void store(uint8_t* to, Row row) { vst1q_u8(to, row.low), vst1q_u8(to + 16, row.high); }
inline Row at_least(Row x, Row least) { return {vcgeq_u8(x.low, least.low), vcgeq_u8(x.high, least.high)}; }

// One bit for each byte, of bytes that are all ones or all zeros: eight different bits side by side are added to a byte.
inline uint32_t mask_of(Row row) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t sums = vpaddq_u8(vandq_u8(row.low, bits), vandq_u8(row.high, bits));
    sums = vpaddq_u8(sums, sums);
    sums = vpaddq_u8(sums, sums);
    return vgetq_lane_u32(vreinterpretq_u32_u8(sums), 0);
}

void near(const int16_t* dots, int64_t count, const int16_t* reach, uint32_t* masks) {
    int16x8_t least[4];
    for (int v = 0; v < 4; ++v) least[v] = vdupq_n_s16(INT16_MIN);
    for (int64_t r = 0; r < count; ++r)
        for (int v = 0; v < 4; ++v) least[v] = vmaxq_s16(least[v], vld1q_s16(dots + r * kPage + v * 8));
    for (int v = 0; v < 4; ++v) {  // twice: the whole distance may not fit
        const int16x8_t distance = vld1q_s16(reach + v * 8);
        least[v] = vqsubq_s16(vqsubq_s16(least[v], distance), distance);
    }
    for (int64_t r = 0; r < count; ++r) {
        uint8x8_t within[4];
        for (int v = 0; v < 4; ++v) within[v] = vmovn_u16(vcgeq_s16(vld1q_s16(dots + r * kPage + v * 8), least[v]));
        masks[r] = mask_of({vcombine_u8(within[0], within[1]), vcombine_u8(within[2], within[3])});
    }
}

inline int8x16_t centred(uint8x16_t codes) { return vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(128))); }  // u − 128

// u − 128 of four bytes and of 16, as floats
inline float32x4_t four_floats(const uint8_t* codes) {
    uint32_t word;
    std::memcpy(&word, codes, 4);
    const int8x8_t bytes = vreinterpret_s8_u8(veor_u8(vreinterpret_u8_u32(vdup_n_u32(word)), vdup_n_u8(128)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}
inline float32x4x4_t sixteen_floats(const uint8_t* codes) {
    const int8x16_t bytes = centred(vld1q_u8(codes));
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
}

// Four sums, as the baseline has: the same rounding.
inline float inner(const uint8_t* row, const float* query, int64_t dim) {
    float32x4_t sums = vdupq_n_f32(0);
    int64_t x = 0;
    for (; x + 16 <= dim; x += 16) {
        const float32x4x4_t wide = sixteen_floats(row + x);
        for (int part = 0; part < 4; ++part) sums = vfmaq_f32(sums, wide.val[part], vld1q_f32(query + x + 4 * part));
    }
    for (; x < dim; x += 4) sums = vfmaq_f32(sums, four_floats(row + x), vld1q_f32(query + x));
    return vaddvq_f32(sums);  // (0 + 1) + (2 + 3)
}

void products(const uint8_t* row, const float* query, int64_t dim, uint32_t mask, float* out) {
    for (; mask != 0; mask &= mask - 1) {
        const int i = __builtin_ctz(mask);
        out[i] = inner(row, query + i * dim, dim);
    }
}

void widen(const uint8_t* codes, int64_t count, float inverse, float* out) {
    int64_t x = 0;
    for (; x + 16 <= count; x += 16) {
        const float32x4x4_t wide = sixteen_floats(codes + x);
        for (int part = 0; part < 4; ++part) vst1q_f32(out + x + 4 * part, vmulq_n_f32(wide.val[part], inverse));
    }
    for (; x < count; ++x) out[x] = static_cast<float>(codes[x] - 128) * inverse;
}

void lift(const uint8_t* rows, int64_t count, const uint8_t* lifts, uint8_t* out) {
    for (int64_t r = 0; r < count; ++r) {
        const Row row = load(rows + r * kPage);
        const uint8x16_t by = vdupq_n_u8(lifts[r]);
        store(out + r * kPage, {vandq_u8(vqaddq_u8(row.low, by), vtstq_u8(row.low, row.low)),
                                vandq_u8(vqaddq_u8(row.high, by), vtstq_u8(row.high, row.high))});
    }
}

// Bit by bit from the top: a bit is set if enough rows reach the value with it.
void column_thresholds(const uint8_t* rows, int64_t count, int64_t wanted, uint8_t* out) {
    uint8_t found[kPage] = {};
    for (int bit = 7; bit >= 0; --bit) {
        uint8_t with[kPage];
        for (int i = 0; i < kPage; ++i) with[i] = static_cast<uint8_t>(found[i] | 1 << bit);
        const Row tried = load(with);
        int64_t reached[kPage] = {};
        for (int64_t first = 0; first < count; first += 255) {  // as many as a byte can count
            Row some = {vdupq_n_u8(0), vdupq_n_u8(0)};
            const int64_t last = first + 255 < count ? first + 255 : count;
            for (int64_t r = first; r < last; ++r) {
                const Row more = at_least(load(rows + r * kPage), tried);
                some = {vsubq_u8(some.low, more.low), vsubq_u8(some.high, more.high)};
            }
            uint8_t counts[kPage];
            store(counts, some);
            for (int i = 0; i < kPage; ++i) reached[i] += counts[i];
        }
        for (int i = 0; i < kPage; ++i)
            if (reached[i] >= wanted) found[i] = with[i];
    }
    std::memcpy(out, found, kPage);
}

uint8_t threshold(const uint8_t* values, int64_t count, int64_t wanted) {
    constexpr int64_t kStep = 16;
    uint8_t rest[kStep] = {};  // zeros reach no value that is tried
    const int64_t whole = count / kStep * kStep;
    if (count > whole) std::memcpy(rest, values + whole, static_cast<size_t>(count - whole));
    int found = 0;
    for (int bit = 7; bit >= 0; --bit) {
        const uint8x16_t tried = vdupq_n_u8(static_cast<uint8_t>(found | 1 << bit));
        int64_t reached = vaddlvq_u8(vshrq_n_u8(vcgeq_u8(vld1q_u8(rest), tried), 7));
        for (int64_t first = 0; first < whole; first += 255 * kStep) {
            uint8x16_t some = vdupq_n_u8(0);
            const int64_t last = first + 255 * kStep < whole ? first + 255 * kStep : whole;
            for (int64_t v = first; v < last; v += kStep) some = vsubq_u8(some, vcgeq_u8(vld1q_u8(values + v), tried));
            reached += vaddlvq_u8(some);
        }
        if (reached >= wanted) found |= 1 << bit;
    }
    return static_cast<uint8_t>(found);
}

void reach(const uint8_t* rows, int64_t count, const uint8_t* least, uint32_t* masks) {
    const Row from = load(least);
    for (int64_t r = 0; r < count; ++r) masks[r] = mask_of(at_least(load(rows + r * kPage), from));
}

int64_t above(const uint8_t* values, int64_t count, uint8_t limit, int32_t* positions) {
    const uint8x16_t most = vdupq_n_u8(limit);
    int64_t found = 0;
    const auto note = [&](const uint8_t* from, int64_t first) {
        const Row row = load(from);
        uint32_t mask = mask_of({vcgtq_u8(row.low, most), vcgtq_u8(row.high, most)});
        for (; mask != 0; mask &= mask - 1) positions[found++] = static_cast<int32_t>(first + __builtin_ctz(mask));
    };
    int64_t v = 0;
    for (; v + kPage <= count; v += kPage) note(values + v, v);
    uint8_t rest[kPage] = {};
    if (v < count) std::memcpy(rest, values + v, static_cast<size_t>(count - v));
    note(rest, v);
    return found;
}

void raise(uint8_t* rows, const int32_t* listed, int64_t count, const uint8_t* row) {
    const Row with = load(row);
    for (int64_t l = 0; l < count; ++l) {
        uint8_t* target = rows + int64_t{listed[l]} * kPage;
        const Row old = load(target);
        store(target, {vmaxq_u8(old.low, with.low), vmaxq_u8(old.high, with.high)});
    }
}

inline uint32_t sum_of(Row row) { return uint32_t{vaddlvq_u8(row.low)} + vaddlvq_u8(row.high); }

void drain_sums(uint8_t* rows, int64_t count, uint32_t* sums) {
    for (int64_t r = 0; r < count; ++r) {
        sums[r] += sum_of(load(rows + r * kPage));
        store(rows + r * kPage, {vdupq_n_u8(0), vdupq_n_u8(0)});
    }
}

// The numbers of a group's 32 levels
template <int Bits>
inline Row unpack(const uint8_t* packed) {
    if constexpr (Bits == 4) {
        const uint8x16_t bytes = vld1q_u8(packed);
        return {vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4)};
    } else {
        const uint8x8_t bytes = vld1_u8(packed);
        const uint8x8_t three = vdup_n_u8(3);
        return {vcombine_u8(vand_u8(bytes, three), vand_u8(vshr_n_u8(bytes, 2), three)),
                vcombine_u8(vand_u8(vshr_n_u8(bytes, 4), three), vshr_n_u8(bytes, 6))};
    }
}

template <int Bits>
void expand_bits(const uint8_t* packed, const int8_t* levels, const uint8_t* centroid, int64_t dim, uint8_t* out) {
    const int8x16_t table = vld1q_s8(levels);
    const uint8x16_t sign = vdupq_n_u8(128);  // bytes from 0 … 255 to −128 … 127 and back, for the saturating addition
    const auto half = [&](uint8x16_t numbers, const uint8_t* base) {
        return veorq_u8(vreinterpretq_u8_s8(vqaddq_s8(centred(vld1q_u8(base)), vqtbl1q_s8(table, numbers))), sign);
    };
    const auto group = [&](const uint8_t* from, const uint8_t* base, uint8_t* to) {
        const Row numbers = unpack<Bits>(from);
        store(to, {half(numbers.low, base), half(numbers.high, base + 16)});
    };
    int64_t x = 0;
    for (; x + kGroup <= dim; x += kGroup, packed += 4 * Bits) group(packed, centroid + x, out + x);
    if (x < dim) {  // neither read nor write beyond the end of a row
        uint8_t base[kGroup] = {}, whole[kGroup];
        std::memcpy(base, centroid + x, static_cast<size_t>(dim - x));
        group(packed, base, whole);
        std::memcpy(out + x, whole, static_cast<size_t>(dim - x));
    }
}

void expand(const uint8_t* packed, int bits, const int8_t* levels, const uint8_t* centroid, int64_t dim, uint8_t* out) {
    if (bits == 4) return expand_bits<4>(packed, levels, centroid, dim, out);
    expand_bits<2>(packed, levels, centroid, dim, out);
}

void sketch_cells(const uint8_t* rows, int64_t count, int lanes, int8_t* out) {
    uint8_t used[kPage];
    for (int i = 0; i < kPage; ++i) used[i] = i < lanes ? 255 : 0;
    const Row mask = load(used);
    const auto share = [](uint8x8_t bytes) {
        return vqmovn_s16(vqrdmulhq_n_s16(vreinterpretq_s16_u16(vmovl_u8(bytes)), kCellShare));
    };
    for (int64_t r = 0; r < count; ++r) {
        const Row row = load(rows + r * kPage);
        const uint8x16_t low = vandq_u8(row.low, mask.low), high = vandq_u8(row.high, mask.high);
        vst1q_s8(out + r * kPage, vcombine_s8(share(vget_low_u8(low)), share(vget_high_u8(low))));
        vst1q_s8(out + r * kPage + 16, vcombine_s8(share(vget_low_u8(high)), share(vget_high_u8(high))));
    }
}

// An entry's four coordinates meet those of 2 tokens in a vector. The sum of four products fits 16 bits: 4 · 128 · 63 < 2^15.
void sketch_table(const int8_t* codebooks, const QueryPage& page, int8_t* table) {
    for (int64_t s = 0; s < page.dim / kSubVector; ++s) {
        const int8_t* query = page.panel + s * kPage * kSubVector;
        for (int e = 0; e < kEntries; ++e, codebooks += kSubVector, table += kPage) {
            uint32_t word;
            std::memcpy(&word, codebooks, 4);
            const int8x8_t entry = vreinterpret_s8_u32(vdup_n_u32(word));
            for (int lane = 0; lane < kPage; lane += 8) {
                const int8_t* q = query + lane * kSubVector;
                const int16x8_t first = vpaddq_s16(vmull_s8(vld1_s8(q), entry), vmull_s8(vld1_s8(q + 8), entry));
                const int16x8_t second = vpaddq_s16(vmull_s8(vld1_s8(q + 16), entry), vmull_s8(vld1_s8(q + 24), entry));
                vst1_s8(table + lane, vqmovn_s16(vqrdmulhq_n_s16(vpaddq_s16(first, second), kEntryShare)));
            }
        }
    }
}

uint32_t sketch_sum(const uint8_t* sketches, int64_t count, int64_t sub_vectors, const int8_t* table, const int8_t* cell_rows,
                    int64_t last_cell, const int8_t* least) {
    constexpr int64_t kAhead = 6;  // tokens whose cell's row is asked of the second-level cache before its turn
    const int64_t pairs = sub_vectors / 2, width = kCellBytes + (sub_vectors + 1) / 2;
    const auto cell_row = [&](const uint8_t* sketch) {
        const int64_t cell = sketch[0] | sketch[1] << 8;
        return cell_rows + (cell < last_cell ? cell : last_cell) * kPage;
    };
    struct Sums {
        int8x16_t low, high;
        void add(const int8_t* row) { low = vqaddq_s8(low, vld1q_s8(row)), high = vqaddq_s8(high, vld1q_s8(row + 16)); }
    };
    for (int64_t t = 0; t < kAhead && t < count; ++t) __builtin_prefetch(cell_row(sketches + t * width));
    Sums best = {vld1q_s8(least), vld1q_s8(least + 16)};
    for (int64_t t = 0; t < count; ++t, sketches += width) {
        if (t + kAhead < count) __builtin_prefetch(cell_row(sketches + kAhead * width));
        Sums even = {vdupq_n_s8(0), vdupq_n_s8(0)}, odd = even;
        even.add(cell_row(sketches));
        const uint8_t* numbers = sketches + kCellBytes;
        const int8_t* rows = table;
        for (int64_t p = 0; p < pairs; ++p, rows += 2 * kEntries * kPage) {
            even.add(rows + (numbers[p] & 15) * kPage);
            odd.add(rows + (kEntries + (numbers[p] >> 4)) * kPage);
        }
        if (sub_vectors % 2 != 0) even.add(rows + (numbers[pairs] & 15) * kPage);
        best = {vmaxq_s8(best.low, vqaddq_s8(even.low, odd.low)), vmaxq_s8(best.high, vqaddq_s8(even.high, odd.high))};
    }
    const uint8x16_t sign = vdupq_n_u8(128);
    return sum_of({veorq_u8(vreinterpretq_u8_s8(best.low), sign), veorq_u8(vreinterpretq_u8_s8(best.high), sign)});
}

}  // namespace
}  // namespace weft::neon_bytes_level

weft::ByteKernels weft::neon_bytes(const ByteKernels& others) {
    ByteKernels kernels = others;
    kernels.near = neon_bytes_level::near;
    kernels.products = neon_bytes_level::products;
    kernels.lift = neon_bytes_level::lift;
    kernels.column_thresholds = neon_bytes_level::column_thresholds;
    kernels.threshold = neon_bytes_level::threshold;
    kernels.reach = neon_bytes_level::reach;
    kernels.above = neon_bytes_level::above;
    kernels.raise = neon_bytes_level::raise;
    kernels.drain_sums = neon_bytes_level::drain_sums;
    kernels.expand = neon_bytes_level::expand;
    kernels.sketch_cells = neon_bytes_level::sketch_cells;
    kernels.sketch_table = neon_bytes_level::sketch_table;
    kernels.sketch_sum = neon_bytes_level::sketch_sum;
    kernels.widen = neon_bytes_level::widen;
    return kernels;
}

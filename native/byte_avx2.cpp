// The byte kernels with AVX2. vpmaddubsw multiplies 32 pairs of bytes and adds neighbours into 16 bits; with the
// query within ±63 a pair cannot saturate (2 · 255 · 63 < 2^15). Sums then wrap around modulo 2^16, which does no harm:
// the final value fits 16 bits, so the wrapped sum is the true one. One widening per row instead of one per step.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "byte_kernels.hpp"
#define WEFT_LEVEL avx2_bytes
#include "building_kernels.hpp"

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
    int lane = 0;
    for (; lane + 8 < page.lanes; lane += 16) maxima_of<2>(rows, count, page, lane / 8, best + lane);
    for (; lane < page.lanes; lane += 8) maxima_of<1>(rows, count, page, lane / 8, best + lane);
}

// 16-bit numbers of two vectors of 8, in order: packing works within 128-bit halves
inline __m256i packed(__m256i low, __m256i high) { return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8); }

template <int Rows>
WEFT_KERNEL void dot_tile(const uint8_t* rows, const QueryPage& page, int first_vector, int16_t* out) {
    __m256i dot[Rows][2];
    tile<Rows, 2>(rows, page, first_vector, dot);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) store(out + r * kPage, packed(dot[r][0], dot[r][1]));
}

void dots(const uint8_t* rows, int64_t count, const QueryPage& page, int16_t* out) {
    for (int lane = 0; lane < kPage; lane += 16) {
        int64_t r = 0;
        for (; r + 6 <= count; r += 6) dot_tile<6>(rows + r * page.dim, page, lane / 8, out + r * kPage + lane);
        for (; r < count; ++r) dot_tile<1>(rows + r * page.dim, page, lane / 8, out + r * kPage + lane);
    }
}

void near(const int16_t* dots, int64_t count, const int16_t* reach, uint32_t* masks) {
    __m256i least[2] = {_mm256_set1_epi16(INT16_MIN), _mm256_set1_epi16(INT16_MIN)};
    for (int64_t r = 0; r < count; ++r)
        for (int v = 0; v < 2; ++v) least[v] = _mm256_max_epi16(least[v], load(dots + r * kPage + v * 16));
    for (int v = 0; v < 2; ++v) {  // twice: the whole distance may not fit
        least[v] = _mm256_subs_epi16(least[v], load(reach + v * 16));
        least[v] = _mm256_subs_epi16(least[v], load(reach + v * 16));
    }
    for (int64_t r = 0; r < count; ++r) {
        const __m256i first = _mm256_cmpgt_epi16(least[0], load(dots + r * kPage));
        const __m256i second = _mm256_cmpgt_epi16(least[1], load(dots + r * kPage + 16));
        const __m256i beyond = _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xD8);
        masks[r] = ~static_cast<uint32_t>(_mm256_movemask_epi8(beyond));
    }
}

inline __m256 centred(const uint8_t* codes) {
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(wide, _mm256_set1_epi32(128)));
}

inline float inner(const uint8_t* row, const float* query, int64_t dim) {
    __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
    int64_t x = 0;
    for (; x + 16 <= dim; x += 16) {
        even = _mm256_fmadd_ps(centred(row + x), _mm256_loadu_ps(query + x), even);
        odd = _mm256_fmadd_ps(centred(row + x + 8), _mm256_loadu_ps(query + x + 8), odd);
    }
    alignas(32) float sums[8];
    _mm256_store_ps(sums, _mm256_add_ps(even, odd));
    float sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; x < dim; ++x) sum += static_cast<float>(row[x] - 128) * query[x];
    return sum;
}

void reached(const int16_t* dots, int64_t count, const int16_t* least, uint32_t* masks) {
    const __m256i first = load(least), second = load(least + 16);
    for (int64_t r = 0; r < count; ++r) {
        // Below the least: a byte of ones for each lane, in order once the halves of 128 bits are.
        const __m256i low = _mm256_cmpgt_epi16(first, load(dots + r * kPage)), high = _mm256_cmpgt_epi16(second, load(dots + r * kPage + 16));
        masks[r] = ~static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8)));
    }
}

void products(const uint8_t* row, const float* query, int64_t dim, uint32_t mask, float* out) {
    for (; mask != 0; mask &= mask - 1) {
        const int i = __builtin_ctz(mask);
        out[i] = inner(row, query + i * dim, dim);
    }
}

template <int Rows>
WEFT_KERNEL void similarity_tile(const uint8_t* rows, const QueryPage& page, int first_vector, uint8_t* out) {
    __m256i dot[Rows][2];
    tile<Rows, 2>(rows, page, first_vector, dot);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        const __m256i in_order = packed(_mm256_srai_epi32(dot[r][0], kRowShift), _mm256_srai_epi32(dot[r][1], kRowShift));
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

void lift(const uint8_t* rows, int64_t count, const uint8_t* lifts, uint8_t* out) {
    const __m256i zero = _mm256_setzero_si256();
    for (int64_t r = 0; r < count; ++r) {
        const __m256i row = load(rows + r * kPage);
        const __m256i lifted = _mm256_adds_epu8(row, _mm256_set1_epi8(static_cast<char>(lifts[r])));
        store(out + r * kPage, _mm256_andnot_si256(_mm256_cmpeq_epi8(row, zero), lifted));
    }
}

inline __m256i at_least(__m256i x, __m256i least) { return _mm256_cmpeq_epi8(_mm256_max_epu8(x, least), x); }

// Bit by bit from the top: a bit is set if enough rows reach the value with it.
void column_thresholds(const uint8_t* rows, int64_t count, int64_t wanted, uint8_t* out) {
    __m256i found = _mm256_setzero_si256();
    for (int bit = 7; bit >= 0; --bit) {
        const __m256i tried = _mm256_or_si256(found, _mm256_set1_epi8(static_cast<char>(1 << bit)));
        int64_t reached[kPage] = {};
        for (int64_t first = 0; first < count; first += 255) {  // as many as a byte can count
            __m256i some = _mm256_setzero_si256();
            const int64_t last = first + 255 < count ? first + 255 : count;
            for (int64_t r = first; r < last; ++r) some = _mm256_sub_epi8(some, at_least(load(rows + r * kPage), tried));
            alignas(32) uint8_t counts[kPage];
            store(counts, some);
            for (int i = 0; i < kPage; ++i) reached[i] += counts[i];
        }
        alignas(32) uint8_t bits[kPage];
        for (int i = 0; i < kPage; ++i) bits[i] = static_cast<uint8_t>(reached[i] >= wanted ? 1 << bit : 0);
        found = _mm256_or_si256(found, load(bits));
    }
    store(out, found);
}

uint8_t threshold(const uint8_t* values, int64_t count, int64_t wanted) {
    const __m256i zero = _mm256_setzero_si256();
    alignas(32) uint8_t rest[kPage] = {};  // zeros reach no value that is tried
    const int64_t whole = count / kPage * kPage;
    if (count > whole) std::memcpy(rest, values + whole, static_cast<size_t>(count - whole));
    int found = 0;
    for (int bit = 7; bit >= 0; --bit) {
        const __m256i tried = _mm256_set1_epi8(static_cast<char>(found | 1 << bit));
        const auto reached = [&](const uint8_t* from) {
            return _mm256_sad_epu8(_mm256_sub_epi8(zero, at_least(load(from), tried)), zero);
        };
        __m256i sum = reached(rest);
        for (int64_t v = 0; v < whole; v += kPage) sum = _mm256_add_epi64(sum, reached(values + v));
        const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
        if (_mm_cvtsi128_si64(halves) + _mm_extract_epi64(halves, 1) >= wanted) found |= 1 << bit;
    }
    return static_cast<uint8_t>(found);
}

inline uint32_t mask_of(__m256i x) { return static_cast<uint32_t>(_mm256_movemask_epi8(x)); }

void reach(const uint8_t* rows, int64_t count, const uint8_t* least, uint32_t* masks) {
    const __m256i from = load(least);
    for (int64_t r = 0; r < count; ++r) masks[r] = mask_of(at_least(load(rows + r * kPage), from));
}

int64_t above(const uint8_t* values, int64_t count, uint8_t limit, int32_t* positions) {
    if (limit == 255) return 0;
    const __m256i from = _mm256_set1_epi8(static_cast<char>(limit + 1));
    int64_t found = 0;
    const auto note = [&](uint32_t mask, int64_t first) {
        for (; mask != 0; mask &= mask - 1) positions[found++] = static_cast<int32_t>(first + __builtin_ctz(mask));
    };
    int64_t v = 0;
    for (; v + kPage <= count; v += kPage) note(mask_of(at_least(load(values + v), from)), v);
    alignas(32) uint8_t rest[kPage] = {};
    if (v < count) std::memcpy(rest, values + v, static_cast<size_t>(count - v));
    note(mask_of(at_least(load(rest), from)), v);
    return found;
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

void sketch_cells(const uint8_t* rows, int64_t count, int lanes, int8_t* out) {
    alignas(32) uint8_t used[kPage];
    for (int i = 0; i < kPage; ++i) used[i] = i < lanes ? 255 : 0;
    const __m256i mask = load(used), share = _mm256_set1_epi16(kCellShare);
    for (int64_t r = 0; r < count; ++r) {
        const __m256i row = _mm256_and_si256(load(rows + r * kPage), mask);
        const __m256i low = _mm256_mulhrs_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(row)), share);
        const __m256i high = _mm256_mulhrs_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(row, 1)), share);
        store(out + r * kPage, _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8));
    }
}

// An entry's four coordinates meet those of 8 tokens in a vector: pairs multiplied and added, then the two pairs.
void sketch_table(const int8_t* codebooks, const QueryPage& page, int8_t* table) {
    const __m256i share = _mm256_set1_epi16(kEntryShare);
    for (int64_t s = 0; s < page.dim / kSubVector; ++s) {
        __m256i query[8];  // 4 tokens each, as 16 bits
#pragma GCC unroll 8
        for (int v = 0; v < 8; ++v)
            query[v] = _mm256_cvtepi8_epi16(_mm_loadu_si128(
                reinterpret_cast<const __m128i*>(page.panel + s * kPage * kSubVector + v * 16)));
        for (int e = 0; e < kEntries; ++e, codebooks += kSubVector, table += kPage) {
            int word;
            std::memcpy(&word, codebooks, 4);
            const __m256i entry = _mm256_cvtepi8_epi16(_mm_set1_epi32(word));
            __m256i words[4];  // 8 tokens each
#pragma GCC unroll 4
            for (int v = 0; v < 4; ++v)
                words[v] = _mm256_hadd_epi32(_mm256_madd_epi16(query[2 * v], entry), _mm256_madd_epi16(query[2 * v + 1], entry));
            const __m256i low = _mm256_mulhrs_epi16(_mm256_packs_epi32(words[0], words[1]), share);
            const __m256i high = _mm256_mulhrs_epi16(_mm256_packs_epi32(words[2], words[3]), share);
            // Adding and packing work within 128-bit halves: the lower holds tokens 0 1, 4 5, …, the upper 2 3, 6 7, …
            const __m256i pairs = _mm256_packs_epi16(low, high);
            const __m128i first = _mm256_castsi256_si128(pairs), second = _mm256_extracti128_si256(pairs, 1);
            store(table, _mm256_set_m128i(_mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second)));
        }
    }
}

template <int Pairs>
inline void add_pairs(const uint8_t* sketch, const int8_t* table, __m256i& even, __m256i& odd) {
    uint64_t numbers = 0;
    std::memcpy(&numbers, sketch, Pairs);
#pragma GCC unroll 8
    for (int p = 0; p < Pairs; ++p) {
        // The row of entry e starts at 32 · e: the number, wherever its four bits are, shifted to bit 5.
        const auto at = [&](int from) {
            return static_cast<int64_t>((from >= 5 ? numbers >> (from - 5) : numbers << (5 - from)) & 0x1e0);
        };
        even = _mm256_adds_epi8(even, load(table + (2 * p) * kEntries * kPage + at(8 * p)));
        odd = _mm256_adds_epi8(odd, load(table + (2 * p + 1) * kEntries * kPage + at(8 * p + 4)));
    }
}

uint32_t sketch_sum(const uint8_t* sketches, int64_t count, int64_t sub_vectors, const int8_t* table, const int8_t* cell_rows,
                    int64_t last_cell, const int8_t* least) {
    constexpr int64_t kAhead = 6;  // tokens whose cell's row is asked of the second-level cache before its turn
    const int64_t pairs = sub_vectors / 2, width = kCellBytes + (sub_vectors + 1) / 2;
    const auto cell_row = [&](const uint8_t* sketch) {
        uint16_t cell;
        std::memcpy(&cell, sketch, kCellBytes);
        return cell_rows + (cell < last_cell ? cell : last_cell) * kPage;
    };
    for (int64_t t = 0; t < kAhead && t < count; ++t) __builtin_prefetch(cell_row(sketches + t * width));
    __m256i best = load(least);
    for (int64_t t = 0; t < count; ++t, sketches += width) {
        if (t + kAhead < count) __builtin_prefetch(cell_row(sketches + kAhead * width));
        __m256i even = load(cell_row(sketches)), odd = _mm256_setzero_si256();
        const uint8_t* numbers = sketches + kCellBytes;
        const int8_t* rows = table;
        int64_t p = 0;
        for (; p + 8 <= pairs; p += 8, rows += 16 * kEntries * kPage) add_pairs<8>(numbers + p, rows, even, odd);
        for (; p < pairs; ++p, rows += 2 * kEntries * kPage) add_pairs<1>(numbers + p, rows, even, odd);
        if (sub_vectors % 2 != 0) even = _mm256_adds_epi8(even, load(rows + (numbers[p] & 15) * kPage));
        best = _mm256_max_epi8(best, _mm256_adds_epi8(even, odd));
    }
    const __m256i quarters = _mm256_sad_epu8(_mm256_xor_si256(best, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
    return static_cast<uint32_t>(_mm_cvtsi128_si64(halves) + _mm_extract_epi64(halves, 1));
}

void widen(const uint8_t* codes, int64_t count, float inverse, float* out) {
    int64_t x = 0;
    for (; x + 8 <= count; x += 8) _mm256_storeu_ps(out + x, _mm256_mul_ps(centred(codes + x), _mm256_set1_ps(inverse)));
    for (; x < count; ++x) out[x] = static_cast<float>(codes[x] - 128) * inverse;
}

}  // namespace
}  // namespace weft::avx2_bytes

const weft::ByteKernels weft::kAvx2Bytes = {
    weft::avx2_bytes::maxima, weft::avx2_bytes::dots, weft::avx2_bytes::near, weft::avx2_bytes::reached, weft::avx2_bytes::products,
    weft::avx2_bytes::similarities, weft::avx2_bytes::block_similarities, weft::avx2_bytes::lift,
    weft::avx2_bytes::column_thresholds, weft::avx2_bytes::threshold, weft::avx2_bytes::reach, weft::avx2_bytes::above,
    weft::avx2_bytes::raise, weft::avx2_bytes::drain_sums, weft::avx2_bytes::expand, weft::avx2_bytes::sketch_cells,
    weft::avx2_bytes::sketch_table, weft::avx2_bytes::sketch_sum, weft::avx2_bytes::widen,
    weft::avx2_bytes::pack_centroids, weft::avx2_bytes::nearest, weft::avx2_bytes::sketch_numbers};

// The byte kernels in plain C++, for machines without AVX2: loops the compiler can vectorise by itself.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "byte_kernels.hpp"
#define WEFT_LEVEL baseline_bytes
#include "building_kernels.hpp"

namespace weft::baseline_bytes {
namespace {

// dot(row, token i) for the 32 tokens of a page
void row_dots(const uint8_t* row, const QueryPage& page, int32_t* out) {
    for (int i = 0; i < kPage; ++i) out[i] = 0;
    for (int64_t group = 0; group < page.dim / 4; ++group) {
        const int8_t* q = page.panel + group * kPage * 4;
        const int u0 = row[4 * group] - 128, u1 = row[4 * group + 1] - 128;
        const int u2 = row[4 * group + 2] - 128, u3 = row[4 * group + 3] - 128;
        for (int i = 0; i < kPage; ++i) out[i] += u0 * q[4 * i] + u1 * q[4 * i + 1] + u2 * q[4 * i + 2] + u3 * q[4 * i + 3];
    }
}

uint8_t similarity(int32_t dot) {
    const int32_t shifted = dot >> kRowShift;
    return static_cast<uint8_t>(shifted < 0 ? 0 : shifted > 255 ? 255 : shifted);
}

void maxima(const uint8_t* rows, int64_t count, const QueryPage& page, int32_t* best) {
    int32_t dot[kPage];
    for (int64_t r = 0; r < count; ++r) {
        row_dots(rows + r * page.dim, page, dot);
        for (int i = 0; i < kPage; ++i) best[i] = dot[i] > best[i] ? dot[i] : best[i];
    }
}

void dots(const uint8_t* rows, int64_t count, const QueryPage& page, int16_t* out) {
    int32_t dot[kPage];
    for (int64_t r = 0; r < count; ++r) {
        row_dots(rows + r * page.dim, page, dot);
        for (int i = 0; i < kPage; ++i) out[r * kPage + i] = static_cast<int16_t>(dot[i]);
    }
}

void near(const int16_t* dots, int64_t count, const int16_t* reach, uint32_t* masks) {
    int32_t least[kPage];
    for (int i = 0; i < kPage; ++i) least[i] = INT16_MIN;
    for (int64_t r = 0; r < count; ++r)
        for (int i = 0; i < kPage; ++i) least[i] = dots[r * kPage + i] > least[i] ? dots[r * kPage + i] : least[i];
    for (int i = 0; i < kPage; ++i) least[i] -= 2 * reach[i];
    for (int64_t r = 0; r < count; ++r) {
        uint32_t mask = 0;
        for (int i = 0; i < kPage; ++i) mask |= uint32_t{dots[r * kPage + i] >= least[i]} << i;
        masks[r] = mask;
    }
}

float inner(const uint8_t* row, const float* query, int64_t dim) {
    float sums[4] = {};  // dim is a multiple of 4
    for (int64_t x = 0; x < dim; x += 4)
        for (int part = 0; part < 4; ++part) sums[part] += static_cast<float>(row[x + part] - 128) * query[x + part];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void reached(const int16_t* dots, int64_t count, const int16_t* least, uint32_t* masks) {
    for (int64_t r = 0; r < count; ++r) {
        uint32_t mask = 0;
        for (int i = 0; i < kPage; ++i) mask |= uint32_t{dots[r * kPage + i] >= least[i]} << i;
        masks[r] = mask;
    }
}

void products(const uint8_t* row, const float* query, int64_t dim, uint32_t mask, float* out) {
    for (; mask != 0; mask &= mask - 1) {
        const int i = __builtin_ctz(mask);
        out[i] = inner(row, query + i * dim, dim);
    }
}

void similarities(const uint8_t* rows, int64_t count, const QueryPage& page, uint8_t* out) {
    int32_t dot[kPage];
    for (int64_t r = 0; r < count; ++r) {
        row_dots(rows + r * page.dim, page, dot);
        for (int i = 0; i < kPage; ++i) out[r * kPage + i] = similarity(dot[i]);
    }
}

void block_similarities(const uint8_t* blocks, int64_t count, const QueryPage& page, int token, uint8_t* out) {
    const int8_t* q = page.tokens + token * page.dim;
    for (int64_t b = 0; b < count; ++b) {
        const uint8_t* block = blocks + b * kBlock * page.dim;
        int32_t dot[kBlock] = {};
        for (int64_t group = 0; group < page.dim / 4; ++group) {
            for (int lane = 0; lane < kBlock; ++lane) {
                const uint8_t* u = block + (group * kBlock + lane) * 4;
                for (int x = 0; x < 4; ++x) dot[lane] += (u[x] - 128) * q[4 * group + x];
            }
        }
        for (int lane = 0; lane < kBlock; ++lane) out[b * kBlock + lane] = similarity(dot[lane]);
    }
}

void lift(const uint8_t* rows, int64_t count, const uint8_t* lifts, uint8_t* out) {
    for (int64_t r = 0; r < count; ++r) {
        for (int i = 0; i < kPage; ++i) {
            const int value = rows[r * kPage + i], lifted = value + lifts[r];
            out[r * kPage + i] = static_cast<uint8_t>(value == 0 ? 0 : lifted > 255 ? 255 : lifted);
        }
    }
}

// The largest value that at least `wanted` entries of a histogram reach.
uint8_t reached(const int64_t* histogram, int64_t wanted) {
    int64_t seen = 0;
    for (int value = 255; value > 0; --value)
        if ((seen += histogram[value]) >= wanted) return static_cast<uint8_t>(value);
    return 0;
}

void column_thresholds(const uint8_t* rows, int64_t count, int64_t wanted, uint8_t* out) {
    for (int i = 0; i < kPage; ++i) {
        int64_t histogram[256] = {};
        for (int64_t r = 0; r < count; ++r) ++histogram[rows[r * kPage + i]];
        out[i] = reached(histogram, wanted);
    }
}

uint8_t threshold(const uint8_t* values, int64_t count, int64_t wanted) {
    int64_t histogram[256] = {};
    for (int64_t v = 0; v < count; ++v) ++histogram[values[v]];
    return reached(histogram, wanted);
}

void reach(const uint8_t* rows, int64_t count, const uint8_t* least, uint32_t* masks) {
    for (int64_t r = 0; r < count; ++r) {
        uint32_t mask = 0;
        for (int i = 0; i < kPage; ++i) mask |= uint32_t{rows[r * kPage + i] >= least[i]} << i;
        masks[r] = mask;
    }
}

int64_t above(const uint8_t* values, int64_t count, uint8_t limit, int32_t* positions) {
    int64_t found = 0;
    for (int64_t v = 0; v < count; ++v)
        if (values[v] > limit) positions[found++] = static_cast<int32_t>(v);
    return found;
}

void raise(uint8_t* rows, const int32_t* listed, int64_t count, const uint8_t* row) {
    for (int64_t l = 0; l < count; ++l) {
        uint8_t* target = rows + int64_t{listed[l]} * kPage;
        for (int i = 0; i < kPage; ++i) target[i] = row[i] > target[i] ? row[i] : target[i];
    }
}

void drain_sums(uint8_t* rows, int64_t count, uint32_t* sums) {
    for (int64_t r = 0; r < count; ++r) {
        uint32_t sum = 0;
        for (int i = 0; i < kPage; ++i) sum += rows[r * kPage + i];
        sums[r] += sum;
    }
    std::memset(rows, 0, static_cast<size_t>(count) * kPage);
}

void expand(const uint8_t* packed, int bits, const int8_t* levels, const uint8_t* centroid, int64_t dim, uint8_t* out) {
    const int bytes = 4 * bits, mask = (1 << bits) - 1;
    for (int64_t x = 0; x < dim; ++x) {
        const int j = static_cast<int>(x % kGroup);
        const int value = centroid[x] + levels[packed[x / kGroup * bytes + j % bytes] >> (j / bytes * bits) & mask];
        out[x] = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

int8_t stuck(int value) { return static_cast<int8_t>(value < -128 ? -128 : value > 127 ? 127 : value); }
int share(int value, int of) { return (value * of + (1 << 14)) >> 15; }

void sketch_cells(const uint8_t* rows, int64_t count, int lanes, int8_t* out) {
    for (int64_t r = 0; r < count; ++r)
        for (int i = 0; i < kPage; ++i) out[r * kPage + i] = i < lanes ? stuck(share(rows[r * kPage + i], kCellShare)) : int8_t{0};
}

void sketch_table(const int8_t* codebooks, const QueryPage& page, int8_t* table) {
    for (int64_t s = 0; s < page.dim / kSubVector; ++s) {
        const int8_t* q = page.panel + s * kPage * kSubVector;
        for (int e = 0; e < kEntries; ++e, codebooks += kSubVector) {
            for (int i = 0; i < kPage; ++i) {
                int dot = 0;
                for (int x = 0; x < kSubVector; ++x) dot += codebooks[x] * q[kSubVector * i + x];
                *table++ = stuck(share(dot, kEntryShare));
            }
        }
    }
}

uint32_t sketch_sum(const uint8_t* sketches, int64_t count, int64_t sub_vectors, const int8_t* table, const int8_t* cell_rows,
                    int64_t last_cell, const int8_t* least) {
    int8_t best[kPage];
    std::memcpy(best, least, kPage);
    for (int64_t t = 0; t < count; ++t, sketches += kCellBytes + (sub_vectors + 1) / 2) {
        const int64_t cell = sketches[0] | sketches[1] << 8;
        int8_t even[kPage], odd[kPage] = {};
        std::memcpy(even, cell_rows + (cell < last_cell ? cell : last_cell) * kPage, kPage);
        for (int64_t s = 0; s < sub_vectors; ++s) {
            const int entry = sketches[kCellBytes + s / 2] >> (s % 2 * 4) & 15;
            const int8_t* row = table + (s * kEntries + entry) * kPage;
            int8_t* sum = s % 2 == 0 ? even : odd;
            for (int i = 0; i < kPage; ++i) sum[i] = stuck(sum[i] + row[i]);
        }
        for (int i = 0; i < kPage; ++i) {
            const int8_t score = stuck(even[i] + odd[i]);
            best[i] = score > best[i] ? score : best[i];
        }
    }
    uint32_t sum = 0;
    for (int i = 0; i < kPage; ++i) sum += static_cast<uint32_t>(best[i] + 128);
    return sum;
}

void widen(const uint8_t* codes, int64_t count, float inverse, float* out) {
    for (int64_t x = 0; x < count; ++x) out[x] = static_cast<float>(codes[x] - 128) * inverse;
}

}  // namespace
}  // namespace weft::baseline_bytes

const weft::ByteKernels weft::kBaselineBytes = {
    weft::baseline_bytes::maxima, weft::baseline_bytes::dots, weft::baseline_bytes::near, weft::baseline_bytes::reached,
    weft::baseline_bytes::products,
    weft::baseline_bytes::similarities, weft::baseline_bytes::block_similarities, weft::baseline_bytes::lift,
    weft::baseline_bytes::column_thresholds, weft::baseline_bytes::threshold, weft::baseline_bytes::reach,
    weft::baseline_bytes::above, weft::baseline_bytes::raise, weft::baseline_bytes::drain_sums,
    weft::baseline_bytes::expand, weft::baseline_bytes::sketch_cells, weft::baseline_bytes::sketch_table,
    weft::baseline_bytes::sketch_sum, weft::baseline_bytes::widen,
    weft::baseline_bytes::pack_centroids, weft::baseline_bytes::nearest, weft::baseline_bytes::sketch_numbers};

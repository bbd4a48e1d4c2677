// The byte kernels in plain C++, for machines without AVX2: loops the compiler can vectorise by itself.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "byte_kernels.hpp"

namespace weft::baseline_bytes {
namespace {

// dot(row, token i) for the 32 tokens of a page
void dots(const uint8_t* row, const QueryPage& page, int32_t* out) {
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
    for (int i = 0; i < kPage; ++i) best[i] = INT32_MIN;
    int32_t dot[kPage];
    for (int64_t r = 0; r < count; ++r) {
        dots(rows + r * page.dim, page, dot);
        for (int i = 0; i < kPage; ++i) best[i] = dot[i] > best[i] ? dot[i] : best[i];
    }
}

void similarities(const uint8_t* rows, int64_t count, const QueryPage& page, uint8_t* out) {
    int32_t dot[kPage];
    for (int64_t r = 0; r < count; ++r) {
        dots(rows + r * page.dim, page, dot);
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

}  // namespace
}  // namespace weft::baseline_bytes

const weft::ByteKernels weft::kBaselineBytes = {
    weft::baseline_bytes::maxima, weft::baseline_bytes::similarities, weft::baseline_bytes::block_similarities,
    weft::baseline_bytes::raise,  weft::baseline_bytes::drain_sums, weft::baseline_bytes::expand};

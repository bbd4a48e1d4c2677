// Every byte kernel of every level that this machine can run against those of the baseline, to the last bit.
// Prints one line per level; exits with 1 and the first differences if any disagrees. The baseline itself is compared with NumPy
// by tests/native/engine_oracle.py and building.py.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "byte_layout.hpp"
#include "byte_query.hpp"
#include "cpu.hpp"

namespace {

int failures = 0;
std::mt19937 source(11);

void expect(bool good, const std::string& what) {
    if (good) return;
    if (++failures <= 10) std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

int between(int least, int most) { return least + static_cast<int>(source() % static_cast<unsigned>(most - least + 1)); }

// Exactly as long as asked, so that AddressSanitizer sees a read or a write beyond the end.
template <class T>
class Array {
public:
    explicit Array(int64_t count, T value = {}) : data_(static_cast<size_t>(count), value) {
        if (count == 0) data_.reserve(1);  // an address, for memset and memcpy
    }
    Array(const Array& other) : Array(static_cast<int64_t>(other.data_.size())) {
        std::copy(other.data_.begin(), other.data_.end(), data_.begin());
    }
    Array(int64_t count, int least, int most) : Array(count) {
        for (T& value : data_) value = static_cast<T>(between(least, most));
    }
    operator T*() { return data_.data(); }
    operator const T*() const { return data_.data(); }
    bool operator==(const Array& other) const {
        return std::memcmp(data_.data(), other.data_.data(), data_.size() * sizeof(T)) == 0;
    }

private:
    std::vector<T> data_;
};

using Bytes = Array<uint8_t>;
using Signed = Array<int8_t>;

// What a level is compared by: the same call on both, on outputs of their own.
struct Pair {
    const weft::ByteKernels& wanted;
    const weft::ByteKernels& tried;
    std::string level;

    template <class Output, class Call>
    void compare(const std::string& what, const Output& blank, const Call& call) const {
        Output expected(blank), found(blank);
        call(wanted, expected);
        call(tried, found);
        expect(expected == found, level + ": " + what);
    }
};

// `lanes` tokens of `dim` coordinates, coded against rows of a norm
struct Query {
    Query(int lanes, int64_t dim, double norm)
        : values(lanes * dim, -100, 100), coded(values, lanes, dim, norm, source() % 2 == 0), page(coded.page(0)),
          panel(weft::kPage * dim), bias(weft::kPage * 2), tokens(weft::kPage * dim) {
        std::memcpy(panel, page.panel, static_cast<size_t>(weft::kPage * dim));
        std::memcpy(bias, page.bias, weft::kPage * 2 * sizeof(int16_t));
        std::memcpy(tokens, page.tokens, static_cast<size_t>(weft::kPage * dim));
        page.panel = panel, page.bias = bias, page.tokens = tokens;
    }
    Array<float> values;
    weft::ByteQuery coded;
    weft::QueryPage page;
    Signed panel;
    Array<int16_t> bias;
    Signed tokens;
};

double norm_of(const Bytes& rows, int64_t count, int64_t dim) {
    double longest = 1;
    for (int64_t r = 0; r < count; ++r) {
        double squared = 0;
        for (int64_t x = 0; x < dim; ++x) squared += (rows[r * dim + x] - 128.0) * (rows[r * dim + x] - 128.0);
        longest = std::max(longest, std::sqrt(squared));
    }
    return longest;
}

// Results of lanes beyond the page's tokens are not defined.
template <class T>
void forget_lanes(Array<T>& out, int64_t rows, int lanes) {
    for (int64_t r = 0; r < rows; ++r) std::fill(out + r * weft::kPage + lanes, out + (r + 1) * weft::kPage, T{0});
}

void check_dots(const Pair& pair, int64_t count, int64_t dim, int lanes, bool ends) {
    const std::string what = " of " + std::to_string(count) + " rows, dim " + std::to_string(dim) + ", " + std::to_string(lanes) + " lanes";
    Bytes rows(count * dim, 0, 255);
    if (ends) {
        for (int64_t x = 0; x < count * dim; ++x) rows[x] = rows[x] < 128 ? 0 : 255;
    }
    Query query(lanes, dim, norm_of(rows, count, dim));
    const weft::QueryPage& page = query.page;
    pair.compare("maxima" + what, Array<int32_t>(weft::kPage, -20000, -10), [&](const auto& kernels, auto& best) {
        kernels.maxima(rows, count, page, best);
        forget_lanes(best, 1, lanes);
    });
    pair.compare("dots" + what, Array<int16_t>(count * weft::kPage), [&](const auto& kernels, auto& out) {
        kernels.dots(rows, count, page, out);
    });
    pair.compare("similarities" + what, Bytes(count * weft::kPage), [&](const auto& kernels, auto& out) {
        kernels.similarities(rows, count, page, out);
        forget_lanes(out, count, lanes);
    });
    Array<int16_t> dots(count * weft::kPage), reach(weft::kPage, 0, ends ? 32767 : 400);
    pair.wanted.dots(rows, count, page, dots);
    pair.compare("near" + what, Array<uint32_t>(count), [&](const auto& kernels, auto& masks) {
        kernels.near(dots, count, reach, masks);
    });
    // Whole numbers, whose sums are exact in any order.
    Array<float> whole(weft::kPage * dim, -63, 63);
    const auto mask = static_cast<uint32_t>(source());
    if (count > 0)
        pair.compare("products" + what, Array<float>(weft::kPage), [&](const auto& kernels, auto& out) {
            kernels.products(rows, whole, dim, mask, out);
        });
    pair.compare("widen" + what, Array<float>(count * dim), [&](const auto& kernels, auto& out) {
        kernels.widen(rows, count * dim, 0.0123f, out);
    });
    Bytes blocks(count * weft::kBlock * dim, 0, 255);
    // No vector of a block is longer than this.
    Query held(lanes, dim, 128 * std::sqrt(static_cast<double>(dim)));
    pair.compare("block_similarities" + what, Bytes(count * weft::kBlock), [&](const auto& kernels, auto& out) {
        kernels.block_similarities(blocks, count, held.page, lanes - 1, out);
    });
    Signed codebooks(dim / weft::kSubVector * weft::kEntries * weft::kSubVector, -127, 127);
    pair.compare("sketch_table" + what, Signed(dim / weft::kSubVector * weft::kEntries * weft::kPage), [&](const auto& kernels, auto& out) {
        kernels.sketch_table(codebooks, page, out);
    });
}

void check_rows(const Pair& pair, int64_t count, int most) {
    const std::string what = " of " + std::to_string(count) + " rows up to " + std::to_string(most);
    const Bytes rows(count * weft::kPage, 0, most), lifts(count, 0, 255), least(weft::kPage, 0, most), row(weft::kPage, 0, 255);
    pair.compare("lift" + what, Bytes(count * weft::kPage), [&](const auto& kernels, auto& out) { kernels.lift(rows, count, lifts, out); });
    for (const int64_t wanted : {int64_t{1}, count / 3, count, count + 1}) {
        if (wanted < 1) continue;
        pair.compare("column_thresholds" + what, Bytes(weft::kPage), [&](const auto& kernels, auto& out) {
            kernels.column_thresholds(rows, count, wanted, out);
        });
        for (const int64_t fewer : {int64_t{0}, int64_t{1}, int64_t{17}}) {  // not whole vectors
            const int64_t values = std::max<int64_t>(count * weft::kPage - fewer, 0);
            Bytes exact(values);
            std::copy_n(static_cast<const uint8_t*>(rows), values, static_cast<uint8_t*>(exact));
            pair.compare("threshold" + what, Bytes(1), [&](const auto& kernels, auto& out) {
                out[0] = kernels.threshold(exact, values, wanted);
            });
            for (const int limit : {0, most / 2, most, 255})
                pair.compare("above" + what, Array<int32_t>(values + 1), [&](const auto& kernels, auto& out) {
                    out[values] = static_cast<int32_t>(kernels.above(exact, values, static_cast<uint8_t>(limit), out));
                });
        }
    }
    pair.compare("reach" + what, Array<uint32_t>(count), [&](const auto& kernels, auto& masks) { kernels.reach(rows, count, least, masks); });
    Array<int32_t> listed(count, 0, static_cast<int>(std::max<int64_t>(count - 1, 0)));
    pair.compare("raise" + what, rows, [&](const auto& kernels, auto& out) { kernels.raise(out, listed, count, row); });
    Array<uint32_t> sums(count, 0, 9);
    pair.compare("drain_sums' sums" + what, sums, [&](const auto& kernels, auto& out) {
        Bytes drained(rows);
        kernels.drain_sums(drained, count, out);
    });
    pair.compare("drain_sums' rows" + what, rows, [&](const auto& kernels, auto& out) {
        Array<uint32_t> some(sums);
        kernels.drain_sums(out, count, some);
    });
    for (const int lanes : {1, 15, 16, 31, 32})
        pair.compare("sketch_cells" + what, Signed(count * weft::kPage), [&](const auto& kernels, auto& out) {
            kernels.sketch_cells(rows, count, lanes, out);
        });
}

void check_codes(const Pair& pair, int64_t count, int64_t dim) {
    const std::string what = ", " + std::to_string(count) + " tokens, dim " + std::to_string(dim);
    const Bytes centroid(dim, 0, 255);
    for (const int bits : {2, 4}) {
        const Bytes packed(weft::packed_width(dim, bits), 0, 255);
        const Signed levels(weft::kLevels, -128, 127);
        pair.compare("expand" + what, Bytes(dim), [&](const auto& kernels, auto& out) {
            kernels.expand(packed, bits, levels, centroid, dim, out);
        });
    }
    const int64_t sub_vectors = dim / weft::kSubVector, width = weft::sketch_width(dim), last_cell = 300;
    Bytes sketches(count * width, 0, 255);
    for (int64_t t = 0; t < count; ++t) sketches[t * width + 1] = static_cast<uint8_t>(between(0, 2));  // some cells beyond the last
    const int most = between(3, 127);
    const Signed table(sub_vectors * weft::kEntries * weft::kPage, -most, most), cells((last_cell + 1) * weft::kPage, -128, 127),
        least(weft::kPage, -128, count % 3 == 0 ? 127 : -128);
    pair.compare("sketch_sum" + what, Array<uint32_t>(1), [&](const auto& kernels, auto& out) {
        out[0] = kernels.sketch_sum(sketches, count, sub_vectors, table, cells, last_cell, least);
    });
    Signed codebooks(sub_vectors * weft::kEntries * weft::kSubVector, -127, 127);
    if (count % 2 == 0)  // equal entries, of which the first counts
        for (int64_t x = 0; x < sub_vectors * weft::kEntries * weft::kSubVector; ++x) codebooks[x] = static_cast<int8_t>(codebooks[x] % 2);
    Array<int32_t> bias(sub_vectors * weft::kEntries);
    for (int64_t x = 0; x < sub_vectors * weft::kEntries * weft::kSubVector; ++x) bias[x / 4] -= codebooks[x] * codebooks[x];
    const Bytes row(dim, 0, 255);
    pair.compare("sketch_numbers" + what, Bytes(sub_vectors), [&](const auto& kernels, auto& out) {
        kernels.sketch_numbers(row, centroid, codebooks, bias, sub_vectors, out);
    });
}

void check_nearest(const Pair& pair, int64_t count, int64_t dim, int64_t panels, bool ties) {
    const int64_t centroids = panels * weft::kPanel;
    const Bytes rows(count * dim, 0, 255);
    Signed values(centroids * dim, -127, 127);
    if (ties)
        for (int64_t c = 0; c < centroids; ++c) std::copy_n(values + c % 4 * dim, dim, values + c * dim);  // within a panel, and in the same place of others
    Array<int32_t> bias(centroids);
    for (int64_t x = 0; x < centroids * dim; ++x) bias[x / dim] -= values[x] * values[x];
    bias[centroids - 1] = INT32_MIN / 2;  // as those that fill up a panel
    pair.compare("nearest, " + std::to_string(count) + " rows, dim " + std::to_string(dim), Array<int32_t>(2 * count),
                 [&](const auto& kernels, auto& out) {
                     Array<int16_t> packed(centroids * dim);
                     kernels.pack_centroids(values, centroids, dim, packed);
                     kernels.nearest(rows, count, dim, packed, bias, centroids, out, out + count);
                 });
}

void check_level(const weft::Level& level) {
    const int before = failures;
    const Pair pair{weft::kBaselineBytes, *level.bytes, level.name};
    const int64_t dims[] = {4, 8, 12, 16, 20, 28, 32, 36, 60, 64, 100, 128, 132, 260};
    for (const int64_t dim : dims) {
        for (const int64_t count : {0, 1, 2, 3, 4, 5, 7, 12, 13, 31}) {
            for (const int lanes : {1, 5, 8, 9, 16, 17, 24, 31, 32}) check_dots(pair, count, dim, lanes, lanes % 2 == 0);
            check_codes(pair, count, dim);
            check_nearest(pair, count, dim, 1 + count % 4, count % 2 == 0);
        }
        check_nearest(pair, 97, dim, 3, true);
    }
    for (const int64_t count : {0, 1, 2, 3, 7, 33, 254, 255, 256, 300, 600})
        for (const int most : {1, 3, 127, 200, 255}) check_rows(pair, count, most);
    std::printf("%s: %s\n", level.name, failures == before ? "ok" : "FAILED");
}

}  // namespace

int main() {
    for (const weft::Level& level : weft::supported_levels()) check_level(level);
    if (failures) std::fprintf(stderr, "%d checks failed\n", failures);
    return failures ? 1 : 0;
}

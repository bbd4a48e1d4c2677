#include "token_sample.hpp"

#include <algorithm>
#include <cstddef>

#include "byte_layout.hpp"
#include "byte_query.hpp"
#include "document_rows.hpp"

namespace weft {
namespace {

int64_t cell_of(const CodedSegment& data, const DocumentRows& rows, int64_t token) {
    if (data.bits == 8) {
        const uint8_t* sketch = data.sketches + token * sketch_width(data.dim);
        return std::min<int64_t>(sketch[0] | sketch[1] << 8, data.cells - 1);
    }
    const int32_t* end = data.cell_starts + data.cells;
    return std::min<int64_t>(std::upper_bound(data.cell_starts, end, rows.centroid_of(token)) - data.cell_starts, data.cells) - 1;
}

// The greatest similarities of one lane, as they stand in `values`: those above the byte at which `wanted` of them are, and of those
// at it as many as are missing. All that lie in one step are spread over it evenly.
class Spread {
public:
    bool add(const ByteKernels& kernels, const uint8_t* values, int64_t count, int64_t wanted, double unit, int64_t token,
             TokenRetrieval& into) {
        const uint8_t least = kernels.threshold(values, count, std::min(wanted, count));
        if (least == 0) return false;
        positions_.resize(static_cast<size_t>(count));
        const int64_t found = kernels.above(values, count, static_cast<uint8_t>(least - 1), positions_.data());
        int64_t at[256] = {}, seen[256] = {};
        for (int64_t f = 0; f < found; ++f) ++at[values[positions_[static_cast<size_t>(f)]]];
        for (int64_t f = 0; f < found; ++f) {
            const uint8_t value = values[positions_[static_cast<size_t>(f)]];
            const double part = (static_cast<double>(seen[value]++) + 0.5) / static_cast<double>(at[value]);
            into.add(token, {static_cast<float>((value + part) * unit), 0, 0});
        }
        return true;
    }

private:
    std::vector<int32_t> positions_;
};

// Memory that is kept between queries.
struct Room {
    std::vector<uint8_t> similarities, lifted, values[kPage];
    std::vector<uint32_t> masks;
};

template <class T>
void grow(std::vector<T>& values, size_t size) {
    if (values.size() < size) values.resize(std::max(size, 2 * values.size()));
}

}  // namespace

TokenSample::TokenSample(const ByteKernels& kernels, const CodedSegment& data, const int64_t* tokens, int64_t count)
    : dim_(data.dim), blocks_(static_cast<size_t>(data.cells + 1), 0) {
    DocumentRows rows(kernels, data);
    std::vector<int32_t> cells(static_cast<size_t>(count)), filled(static_cast<size_t>(data.cells), 0);
    for (int64_t t = 0; t < count; ++t) ++filled[static_cast<size_t>(cells[static_cast<size_t>(t)] = static_cast<int32_t>(cell_of(data, rows, tokens[t])))];
    for (size_t c = 0; c < filled.size(); ++c) blocks_[c + 1] = blocks_[c] + (filled[c] + kBlock - 1) / kBlock;
    codes_.assign(static_cast<size_t>(blocks_.back() * kBlock * data.dim), 128);  // no token: as far from any query as can be told, 0
    std::fill(filled.begin(), filled.end(), 0);
    for (int64_t t = 0; t < count; ++t) {
        const auto cell = static_cast<size_t>(cells[static_cast<size_t>(t)]);
        const int32_t slot = filled[cell]++;
        uint8_t* block = codes_.data() + (blocks_[cell] + slot / kBlock) * kBlock * data.dim + slot % kBlock * 4;
        const uint8_t* row = rows.of_token(tokens[t]);
        for (int64_t x = 0; x < data.dim; x += 4) std::copy_n(row + x, 4, block + x * kBlock);
    }
}

bool TokenSample::retrieve(const ByteKernels& kernels, const CodedSegment& data, const float* query, int64_t nearest,
                           TokenRetrieval& into) const {
    const ByteQuery bytes(query, into.tokens(), data.dim, data.norm, false);
    const auto cells = static_cast<size_t>(data.cells);
    static thread_local Room thread_room;
    Room& room = thread_room;  // looked up once: each use of a thread's variable is a call in a shared library
    grow(room.similarities, cells * kPage);
    grow(room.lifted, cells * kPage);
    grow(room.masks, cells);
    TokenRetrieval found(into.tokens(), into.k_prime());
    Spread spread;
    for (int64_t p = 0; p < bytes.pages(); ++p) {
        const QueryPage& page = bytes.page(p);
        kernels.similarities(data.cell_codes, data.cells, page, room.similarities.data());
        const uint8_t* ranked = room.similarities.data();
        if (data.lifts != nullptr) {
            kernels.lift(ranked, data.cells, data.lifts, room.lifted.data());
            ranked = room.lifted.data();
        }
        alignas(32) uint8_t least[kPage];
        kernels.column_thresholds(ranked, data.cells, nearest, least);
        kernels.reach(ranked, data.cells, least, room.masks.data());
        int64_t lengths[kPage] = {};
        const uint32_t used = page.lanes < kPage ? (uint32_t{1} << page.lanes) - 1 : ~uint32_t{0};
        for (size_t c = 0; c < cells; ++c) {  // a cell's tokens are read once for all the query tokens that want them
            const int64_t count = blocks_[c + 1] - blocks_[c];
            if (count == 0) continue;
            for (uint32_t mask = room.masks[c] & used; mask != 0; mask &= mask - 1) {
                const int i = __builtin_ctz(mask);
                grow(room.values[i], static_cast<size_t>(lengths[i] + count * kBlock));
                kernels.block_similarities(codes_.data() + blocks_[c] * kBlock * data.dim, count, page, i, room.values[i].data() + lengths[i]);
                lengths[i] += count * kBlock;
            }
        }
        for (int i = 0; i < page.lanes; ++i) {
            const int64_t token = p * kPage + i;
            const double unit = (1 << kRowShift) * bytes.inverse_scale(token) / data.scale;
            if (!spread.add(kernels, room.values[i].data(), lengths[i], into.k_prime(), unit, token, found)) return false;
        }
    }
    for (int64_t token = 0; token < into.tokens(); ++token)
        for (const RetrievedToken& one : found.of(token)) into.add(token, one);
    return true;
}

}  // namespace weft

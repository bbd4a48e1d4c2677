// The byte rows of a coded segment's tokens, whatever their bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "byte_layout.hpp"
#include "coded_segment.hpp"

namespace weft {

// The byte rows of one document after another: in place, or expanded from residuals into a buffer.
class DocumentRows {
public:
    DocumentRows(const ByteKernels& kernels, const CodedSegment& data) : kernels_(kernels), data_(data) {}

    const uint8_t* of(int32_t document) {
        const int64_t first = data_.offsets[document], last = data_.offsets[document + 1];
        if (data_.bits == 8) return data_.codes + first * data_.dim;
        constexpr int64_t kAhead = 8;  // tokens whose centroid is asked of memory before its turn
        if (buffer_.size() < static_cast<size_t>((last - first) * data_.dim))
            buffer_.resize(static_cast<size_t>((last - first) * data_.dim));
        uint8_t* out = buffer_.data();
        for (int64_t t = first; t < last; ++t, out += data_.dim) {
            if (t + kAhead < last) {
                const uint8_t* next = data_.centroid_rows + centroid(label(t + kAhead)) * data_.dim;
                for (int64_t x = 0; x < data_.dim; x += 64) __builtin_prefetch(next + x);
            }
            expand(t, out);
        }
        return buffer_.data();
    }

    // The row of one token.
    const uint8_t* of_token(int64_t token) {
        if (data_.bits == 8) return data_.codes + token * data_.dim;
        if (buffer_.size() < static_cast<size_t>(data_.dim)) buffer_.resize(static_cast<size_t>(data_.dim));
        expand(token, buffer_.data());
        return buffer_.data();
    }

    // The centroid of one token; with residuals only.
    int32_t centroid_of(int64_t token) const { return static_cast<int32_t>(centroid(label(token))); }

    // Asks memory for the codes of tokens [begin, end) of a document, or for the part of them that exists.
    void prefetch(int32_t document, int64_t begin = 0, int64_t end = INT64_MAX) const {
        const int64_t width = data_.bits == 8 ? data_.dim : packed_width(data_.dim, data_.bits);
        const int64_t length = data_.offsets[document + 1] - data_.offsets[document];
        const int64_t first = data_.offsets[document] + begin, last = data_.offsets[document] + std::min(end, length);
        for (int64_t at = first * width; at < last * width; at += 64) __builtin_prefetch(data_.codes + at);
        if (data_.bits != 8)
            for (int64_t at = first * kLabelBytes; at < last * kLabelBytes; at += 64) __builtin_prefetch(data_.token_centroids + at);
    }

private:
    void expand(int64_t t, uint8_t* out) const {
        const uint32_t of_token = label(t);
        kernels_.expand(data_.codes + t * packed_width(data_.dim, data_.bits), data_.bits,
                        data_.levels + (of_token >> kCentroidBits) * kLevels,
                        data_.centroid_rows + centroid(of_token) * data_.dim, data_.dim, out);
    }
    uint32_t label(int64_t token) const {
        const uint8_t* at = data_.token_centroids + token * kLabelBytes;
        return at[0] | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16;
    }
    // Checked here and not when the segment is opened, which would read a label of every token.
    int64_t centroid(uint32_t label) const {
        return std::min<int64_t>(label & ((uint32_t{1} << kCentroidBits) - 1), data_.centroids - 1);
    }

    const ByteKernels& kernels_;
    const CodedSegment& data_;
    std::vector<uint8_t> buffer_;
};

}  // namespace weft

#include <algorithm>

#include "corpus_index.hpp"

namespace weft {

int64_t CorpusIndex::document_of(int64_t position) const {
    const int64_t* end = starts_ + documents_ + 1;
    return std::clamp<int64_t>(std::upper_bound(starts_, end, position) - starts_ - 1, 0, std::max<int64_t>(documents_ - 1, 0));
}

void CorpusIndex::extend(const States& states, const int64_t* beams, const int32_t* tokens, int64_t count, Range* out) const {
    for (int64_t i = 0; i < count; ++i) {
        const int64_t state = beams == nullptr ? i : beams[i];
        out[i] = extend(states.range(state), states.depth[state], tokens[i]);
    }
}

int64_t CorpusIndex::head(Range range, int64_t depth) const {
    if (depth >= heads_.depths) return -1;
    const uint32_t *begin = heads_.lows + heads_.first[depth], *end = heads_.lows + heads_.first[depth + 1];
    const uint32_t* found = std::lower_bound(begin, end, static_cast<uint32_t>(range.low));
    if (found == end || *found != range.low) return -1;
    // A part of a head's range is no head: a caller may have made the state himself.
    const int64_t head = found - heads_.lows;
    const int64_t begins = heads_.offsets[head], ends = heads_.offsets[head + 1];
    const int64_t covered = ends > begins ? heads_.stops[ends - 1] : 0;
    return covered <= range.high - range.low ? head : -1;
}

template <class Symbol>
int64_t SuffixIndex<Symbol>::lower(int64_t low, int64_t high, int64_t depth, uint32_t symbol) const {
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (next(middle, depth) < symbol)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

template <class Symbol>
int64_t SuffixIndex<Symbol>::gallop(int64_t low, int64_t high, int64_t depth, uint32_t symbol) const {
    int64_t stride = 1;
    while (low + stride <= high && next(low + stride - 1, depth) < symbol) {
        low += stride;
        stride *= 2;
    }
    return lower(low, std::min(low + stride - 1, high), depth, symbol);
}

template <class Symbol>
Range SuffixIndex<Symbol>::narrow(Range range, int64_t depth, uint32_t symbol) const {
    const int64_t known = head(range, depth);
    if (known >= 0) {
        const int64_t begin = heads_.offsets[known], end = heads_.offsets[known + 1];
        const Symbol* symbols = static_cast<const Symbol*>(heads_.symbols);
        const Symbol* found = std::lower_bound(symbols + begin, symbols + end, symbol);
        if (found == symbols + end || *found != symbol) return {0, 0};
        // Rows that end here, where 0 follows, come first and are not in the list.
        const int64_t at = found - symbols, from = range.high - heads_.stops[end - 1];
        const int64_t stop = std::min<int64_t>(from + heads_.stops[at], range.high);
        return {std::min<int64_t>(from + (at > begin ? heads_.stops[at - 1] : 0), stop), stop};
    }
    const int64_t low = lower(range.low, range.high, depth, symbol);
    if (low == range.high || next(low, depth) != symbol) return {0, 0};
    return {low, gallop(low, range.high, depth, symbol + 1)};
}

template <class Symbol>
void SuffixIndex<Symbol>::continuations(const States& states, Continuations& out, int64_t* offsets) const {
    offsets[0] = 0;
    for (int64_t i = 0; i < states.count; ++i) {
        continuations(states.range(i), states.depth[i], out);
        offsets[i + 1] = out.tokens.size();
    }
}

template <class Symbol>
void SuffixIndex<Symbol>::continuations(Range range, int64_t depth, Continuations& out) const {
    if (range.low >= range.high) return;
    const int64_t known = head(range, depth);
    if (known >= 0) return copy_head<Symbol>(known, out);
    if (range.high - range.low <= kGathered) return gather(range, depth, out);
    int64_t row = gallop(range.low, range.high, depth, 1);
    while (row < range.high) {
        const uint32_t symbol = next(row, depth);
        if (symbol == 0) return;  // rows out of order: damaged arrays
        const int64_t stop = std::max(gallop(row, range.high, depth, symbol + 1), row + 1);
        out.tokens.push(token_of(symbol));
        if (out.counted) out.counts.push(static_cast<int32_t>(stop - row));
        row = stop;
    }
}

// Few rows: fetch all their next symbols first. The fetches wait for memory side by side; a search would wait for one after
// the other, as each decides where to look next.
template <class Symbol>
void SuffixIndex<Symbol>::gather(Range range, int64_t depth, Continuations& out) const {
    uint32_t follow[kGathered];
    const int64_t count = range.high - range.low;
    for (int64_t i = 0; i < count; ++i) follow[i] = next(range.low + i, depth);
    int32_t* tokens = out.tokens.reserve(count);
    int32_t* counts = out.counted ? out.counts.reserve(count) : nullptr;
    int64_t made = 0, from = 0;
    while (from < count && follow[from] == 0) ++from;
    while (from < count) {
        int64_t stop = from + 1;
        while (stop < count && follow[stop] == follow[from]) ++stop;
        tokens[made] = token_of(follow[from]);
        if (counts != nullptr) counts[made] = static_cast<int32_t>(stop - from);
        ++made;
        from = stop;
    }
    out.tokens.commit(made);
    if (counts != nullptr) out.counts.commit(made);
}

template <class Symbol>
int64_t SuffixIndex<Symbol>::position(int64_t row, int64_t) const {
    return suffixes_[row] < static_cast<uint64_t>(rows_) ? suffixes_[row] : -1;
}

template <class Symbol>
void SuffixIndex<Symbol>::read(const int64_t* documents, int64_t count, int32_t* out) const {
    for (int64_t d = 0; d < count; ++d) {
        const Symbol* text = text_ + starts_[documents[d]];
        const int64_t size = length(documents[d]);
        for (int64_t i = 0; i < size; ++i) *out++ = token_of(text[i]);
    }
}

template class SuffixIndex<uint16_t>;
template class SuffixIndex<uint32_t>;

}  // namespace weft

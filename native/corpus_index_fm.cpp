#include <algorithm>
#include <memory>
#include <vector>

#include "cpu.hpp"
#include "corpus_index.hpp"

namespace weft {

#ifdef WEFT_FM_FOR_POPCNT
constexpr bool kPopcnt = true;
#else
constexpr bool kPopcnt = false;
#endif

namespace {

inline int64_t ones(uint64_t x) {
#ifdef __POPCNT__
    return __builtin_popcountll(x);
#else  // in plain arithmetic: the baseline machine has no instruction for it
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return static_cast<int64_t>((x * 0x0101010101010101u) >> 56);
#endif
}

struct Place {
    int64_t line;
    unsigned bit;
};

inline Place place(int64_t i) {
    const auto line = static_cast<uint32_t>(i) / static_cast<uint32_t>(kLineBits);
    return {line, static_cast<unsigned>(i - int64_t{line} * kLineBits)};
}

// Ones before `bit` of a line, plus those before the line.
inline int64_t rank_in(const uint64_t* line, unsigned bit) {
    const uint64_t header = line[0];
    const unsigned word = bit / 64, pair = word / 2;
    const auto within = pair == 0 ? 0 : static_cast<int64_t>((header >> (32 + 9 * (pair - 1))) & 511u);
    int64_t count = static_cast<int64_t>(header & 0xffffffffu) + within;
    if (word % 2 != 0) count += ones(line[word]);
    const unsigned rest = bit % 64;
    if (rest != 0) count += ones(line[1 + word] & ((uint64_t{1} << rest) - 1));
    return count;
}

// Ones among the first i bits, 0 <= i <= bits.
inline int64_t rank(const uint64_t* lines, int64_t i) {
    const Place at = place(i);
    return rank_in(lines + at.line * kLineWords, at.bit);
}

inline bool bit_at(const uint64_t* lines, int64_t i) {
    const Place at = place(i);
    return (lines[at.line * kLineWords + 1 + at.bit / 64] >> (at.bit % 64)) & 1u;
}

inline void fetch(const uint64_t* lines, int64_t i) {
#if defined(__GNUC__)
    __builtin_prefetch(lines + place(i).line * kLineWords);
#else
    (void)lines, (void)i;
#endif
}

constexpr int64_t kAhead = 8;       // places whose lines are on their way while one is looked at
constexpr int64_t kDocuments = 32;  // read side by side

}  // namespace

#ifndef WEFT_FM_FOR_POPCNT
void set_bit(uint64_t* lines, int64_t i) {
    const Place at = place(i);
    lines[at.line * kLineWords + 1 + at.bit / 64] |= uint64_t{1} << (at.bit % 64);
}

void fill_ranks(uint64_t* lines, int64_t bits) {
    uint64_t total = 0;
    for (int64_t l = 0; l < bit_lines(bits); ++l) {
        uint64_t* line = lines + l * kLineWords;
        uint64_t within = 0, header = total;
        for (unsigned word = 0; word < kLineWords - 1; ++word) {
            if (word == 2 || word == 4 || word == 6) header |= within << (32 + 9 * (word / 2 - 1));
            within += static_cast<uint64_t>(ones(line[1 + word]));
        }
        line[0] = header;
        total += within;
    }
}

template <class Symbol>
void build_wavelet(Symbol* symbols, int64_t rows, int64_t levels, int64_t alphabet, uint64_t* lines, uint32_t* zeros,
                   uint32_t* leaves) {
    std::vector<Symbol> high(static_cast<size_t>(rows));
    for (int64_t level = 0; level < levels; ++level) {
        uint64_t* bits = lines + level * bit_lines(rows) * kLineWords;
        const auto shift = static_cast<unsigned>(levels - 1 - level);
        int64_t low = 0, up = 0;
        for (int64_t i = 0; i < rows; ++i) {
            const Symbol symbol = symbols[i];
            if ((symbol >> shift) & 1u) {
                set_bit(bits, i);
                high[static_cast<size_t>(up++)] = symbol;
            } else {
                symbols[low++] = symbol;
            }
        }
        std::copy_n(high.begin(), up, symbols + low);
        zeros[level] = static_cast<uint32_t>(low);
        fill_ranks(bits, rows);
    }
    std::fill_n(leaves, alphabet + 1, 0u);
    for (int64_t i = rows; i-- > 0;)
        if (static_cast<int64_t>(symbols[i]) <= alphabet) leaves[symbols[i]] = static_cast<uint32_t>(i);
}

template void build_wavelet(uint16_t*, int64_t, int64_t, int64_t, uint64_t*, uint32_t*, uint32_t*);
template void build_wavelet(uint32_t*, int64_t, int64_t, int64_t, uint64_t*, uint32_t*, uint32_t*);

template <class Symbol>
std::unique_ptr<CorpusIndex> make_fm(int64_t rows, Alphabet alphabet, Heads heads, int64_t documents, const int64_t* starts,
                                   Wavelet wavelet, Samples samples) {
#ifdef WEFT_HAVE_POPCNT
    if (active_level().bytes != &kBaselineBytes)  // every machine with AVX2 has it
        return std::make_unique<FmIndex<Symbol, true>>(rows, alphabet, heads, documents, starts, wavelet, samples);
#endif
    return std::make_unique<FmIndex<Symbol, false>>(rows, alphabet, heads, documents, starts, wavelet, samples);
}

template std::unique_ptr<CorpusIndex> make_fm<uint16_t>(int64_t, Alphabet, Heads, int64_t, const int64_t*, Wavelet, Samples);
template std::unique_ptr<CorpusIndex> make_fm<uint32_t>(int64_t, Alphabet, Heads, int64_t, const int64_t*, Wavelet, Samples);
#endif

template <class Symbol, bool Popcnt>
void FmIndex<Symbol, Popcnt>::descend(Node* nodes, int64_t count) const {
    for (int64_t level = 0; level < wavelet_.levels; ++level) {
        const uint64_t* bits = lines(level);
        const int64_t base = wavelet_.zeros[level];
        const auto shift = static_cast<unsigned>(wavelet_.levels - 1 - level);
        for (int64_t i = 0; i < count; ++i) {
            if (i + kAhead < count) {
                fetch(bits, nodes[i + kAhead].low);
                fetch(bits, nodes[i + kAhead].high);
            }
            Node& node = nodes[i];
            const int64_t before = rank(bits, node.low), until = rank(bits, node.high);
            if ((node.prefix >> shift) & 1u) {
                node.low = static_cast<uint32_t>(std::min(base + before, rows_));
                node.high = static_cast<uint32_t>(std::min(base + until, rows_));
            } else {
                node.low = static_cast<uint32_t>(std::max<int64_t>(node.low - before, 0));
                node.high = static_cast<uint32_t>(std::max<int64_t>(node.high - until, 0));
            }
        }
    }
}

template <class Symbol, bool Popcnt>
Range FmIndex<Symbol, Popcnt>::leaf(const Node& node) const {
    if (node.low >= node.high) return {0, 0};
    const int64_t low = alphabet_.first[node.prefix] + (int64_t{node.low} - wavelet_.leaves[node.prefix]);
    const int64_t high = low + node.high - node.low;
    return low >= 0 && high <= rows_ ? Range{low, high} : Range{0, 0};
}

template <class Symbol, bool Popcnt>
Range FmIndex<Symbol, Popcnt>::narrow(Range range, int64_t, uint32_t symbol) const {
    Node node{static_cast<uint32_t>(range.low), static_cast<uint32_t>(range.high), symbol, 0};
    descend(&node, 1);
    return leaf(node);
}

template <class Symbol, bool Popcnt>
void FmIndex<Symbol, Popcnt>::extend(const States& states, const int64_t* beams, const int32_t* tokens, int64_t count,
                                    Range* out) const {
    std::vector<Node> nodes;
    nodes.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t state = beams == nullptr ? i : beams[i];
        const uint32_t symbol = symbol_of(tokens[i]);
        const Range range = states.range(state);
        if (symbol == 0 || range.low >= range.high || states.depth[state] == 0)
            out[i] = CorpusIndex::extend(range, states.depth[state], tokens[i]);  // needs no rank
        else
            nodes.push_back({static_cast<uint32_t>(range.low), static_cast<uint32_t>(range.high), symbol, static_cast<int32_t>(i)});
    }
    descend(nodes.data(), static_cast<int64_t>(nodes.size()));
    for (const Node& node : nodes) out[node.state] = leaf(node);
}

template <class Symbol, bool Popcnt>
void FmIndex<Symbol, Popcnt>::spread(std::vector<Node>& nodes) const {
    std::vector<Node> children;
    for (int64_t level = 0; level < wavelet_.levels; ++level) {
        const uint64_t* bits = lines(level);
        const int64_t base = wavelet_.zeros[level];
        children.resize(2 * nodes.size());
        Node* made = children.data();
        const auto count = static_cast<int64_t>(nodes.size());
        for (int64_t i = 0; i < count; ++i) {
            if (i + kAhead < count) {
                const Node& ahead = nodes[static_cast<size_t>(i + kAhead)];
                fetch(bits, ahead.low);
                if (ahead.high - ahead.low > 1) fetch(bits, ahead.high);
            }
            const Node node = nodes[static_cast<size_t>(i)];
            const int64_t before = rank(bits, node.low);
            const int64_t inside = node.high - node.low == 1 ? bit_at(bits, node.low) : rank(bits, node.high) - before;
            // Bounds hold for sound arrays; clamped, damaged ones stay inside.
            const auto up = static_cast<uint32_t>(std::clamp<int64_t>(inside, 0, node.high - node.low));
            const uint32_t down = node.high - node.low - up;
            const auto low = static_cast<uint32_t>(std::clamp<int64_t>(node.low - before, 0, rows_ - down));
            const auto high = static_cast<uint32_t>(std::clamp<int64_t>(base + before, 0, rows_ - up));
            // Written always, kept where not empty: whether a bit occurs cannot be foretold.
            *made = {low, low + down, node.prefix << 1, node.state};
            made += down != 0;
            *made = {high, high + up, node.prefix << 1 | 1u, node.state};
            made += up != 0;
        }
        children.resize(static_cast<size_t>(made - children.data()));
        nodes.swap(children);
    }
}

template <class Symbol, bool Popcnt>
void FmIndex<Symbol, Popcnt>::continuations(const States& states, Continuations& out, int64_t* offsets) const {
    std::vector<Node> nodes;
    std::vector<int64_t> heads(static_cast<size_t>(states.count), -1);
    for (int64_t i = 0; i < states.count; ++i) {
        const Range range = states.range(i);
        if (range.low >= range.high) continue;
        heads[static_cast<size_t>(i)] = head(range, states.depth[i]);
        if (heads[static_cast<size_t>(i)] < 0)
            nodes.push_back({static_cast<uint32_t>(range.low), static_cast<uint32_t>(range.high), 0, static_cast<int32_t>(i)});
    }
    spread(nodes);
    offsets[0] = 0;
    const Node *node = nodes.data(), *end = node + nodes.size();
    for (int64_t i = 0; i < states.count; ++i) {
        if (heads[static_cast<size_t>(i)] >= 0) this->template copy_head<Symbol>(heads[static_cast<size_t>(i)], out);
        for (; node != end && node->state == i; ++node) {
            if (node->prefix == 0) continue;
            out.tokens.push(token_of(node->prefix));
            if (out.counted) out.counts.push(static_cast<int32_t>(node->high - node->low));
        }
        offsets[i + 1] = out.tokens.size();
    }
}

template <class Symbol, bool Popcnt>
void FmIndex<Symbol, Popcnt>::step(Step* steps, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
        steps[i].at = steps[i].row;
        steps[i].symbol = 0;
    }
    for (int64_t level = 0; level < wavelet_.levels; ++level) {
        const uint64_t* bits = lines(level);
        const int64_t base = wavelet_.zeros[level];
        for (int64_t i = 0; i < count; ++i) {
            if (i + kAhead < count) fetch(bits, steps[i + kAhead].at);
            Step& one = steps[i];
            const bool up = bit_at(bits, one.at);
            const int64_t before = rank(bits, one.at);
            one.at = up ? std::min(base + before, rows_ - 1) : std::max<int64_t>(one.at - before, 0);
            one.symbol = one.symbol << 1 | static_cast<uint32_t>(up);
        }
    }
    for (int64_t i = 0; i < count; ++i) {
        Step& one = steps[i];
        if (one.symbol > static_cast<uint64_t>(alphabet_.size)) {
            one = {0, 0, 0};
            continue;
        }
        int64_t next = int64_t{alphabet_.first[one.symbol]} + one.at - wavelet_.leaves[one.symbol];
        // The text's end is followed by nothing, and its 0 is the backward text's last, the least of all suffixes.
        if (one.symbol == 0) next = one.row == samples_.origin ? 0 : next + (one.row < samples_.origin ? 1 : 0);
        one.row = std::clamp<int64_t>(next, 0, rows_ - 1);
    }
}

template <class Symbol, bool Popcnt>
int64_t FmIndex<Symbol, Popcnt>::position(int64_t row, int64_t depth) const {
    Step walk{row, 0, 0};
    for (int64_t steps = 0; steps <= samples_.rate; ++steps) {
        if (bit_at(samples_.marks, walk.row)) {
            const int64_t which = rank(samples_.marks, walk.row);
            if (which >= samples_.count) return -1;
            int64_t last = int64_t{samples_.values[which]} * samples_.rate - steps;
            if (last < 0) last += rows_;  // the walk went over the text's end
            const int64_t begin = last - depth + 1;
            return 0 <= begin && begin < rows_ ? begin : -1;
        }
        step(&walk, 1);
    }
    return -1;
}

template <class Symbol, bool Popcnt>
void FmIndex<Symbol, Popcnt>::read(const int64_t* documents, int64_t count, int32_t* out) const {
    Step steps[kDocuments];
    int32_t* write[kDocuments];
    int64_t left[kDocuments];
    for (int64_t first = 0; first < count; first += kDocuments) {
        int64_t open = 0;  // documents of this group that are not at their end
        for (int64_t d = first; d < std::min(count, first + kDocuments); ++d) {
            const int64_t size = length(documents[d]);
            if (size > 0) {
                steps[open] = {std::min<int64_t>(samples_.rows[documents[d]], rows_ - 1), 0, 0};
                write[open] = out;
                left[open++] = size;
            }
            out += size;
        }
        while (open > 0) {
            step(steps, open);
            for (int64_t i = 0; i < open; ++i) {
                *write[i]++ = token_of(steps[i].symbol);
                if (--left[i] > 0) continue;
                --open;  // the last takes its place, and its turn
                steps[i] = steps[open];
                write[i] = write[open];
                left[i] = left[open];
                --i;
            }
        }
    }
}

template class FmIndex<uint16_t, kPopcnt>;
template class FmIndex<uint32_t, kPopcnt>;

}  // namespace weft

#include <algorithm>
#include <vector>

#include "token_text.hpp"

namespace weft {

namespace {

inline int64_t ones(uint64_t x) {  // in plain arithmetic: the baseline machine has no instruction for it
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return static_cast<int64_t>((x * 0x0101010101010101u) >> 56);
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

}  // namespace

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
Range FmText<Symbol>::narrow(Range range, int64_t, uint32_t symbol) const {
    int64_t low = range.low, high = range.high;
    for (int64_t level = 0; level < wavelet_.levels; ++level) {
        const uint64_t* bits = wavelet_.lines + level * stride_;
        const int64_t before = rank(bits, low), until = rank(bits, high);
        if ((symbol >> (wavelet_.levels - 1 - level)) & 1u) {
            low = std::min(wavelet_.zeros[level] + before, rows_);
            high = std::min(wavelet_.zeros[level] + until, rows_);
        } else {
            low = std::max<int64_t>(low - before, 0);
            high = std::max<int64_t>(high - until, 0);
        }
        if (low >= high) return {0, 0};
    }
    const int64_t skipped = low - wavelet_.leaves[symbol], first = alphabet_.first[symbol];
    const Range made{first + skipped, first + skipped + high - low};
    return made.low >= 0 && made.high <= rows_ ? made : Range{0, 0};
}

template <class Symbol>
void FmText<Symbol>::walk(int64_t level, int64_t low, int64_t high, uint32_t prefix, Continuations& out) const {
    for (; level < wavelet_.levels; ++level) {
        const uint64_t* bits = wavelet_.lines + level * stride_;
        const int64_t base = wavelet_.zeros[level];
        if (high - low == 1) {  // one row: look at its bit, and rank once
            const bool up = bit_at(bits, low);
            const int64_t before = rank(bits, low);
            low = up ? std::min(base + before, rows_ - 1) : std::max<int64_t>(low - before, 0);
            high = low + 1;
            prefix = prefix << 1 | static_cast<uint32_t>(up);
            continue;
        }
        const int64_t before = rank(bits, low), until = rank(bits, high);
        const Range down{std::max<int64_t>(low - before, 0), std::max<int64_t>(high - until, 0)};
        const Range up{std::min(base + before, rows_), std::min(base + until, rows_)};
        if (down.low < down.high && up.low < up.high) {
            walk(level + 1, down.low, down.high, prefix << 1, out);
        } else if (down.low < down.high) {
            low = down.low, high = down.high, prefix = prefix << 1;
            continue;
        } else if (up.low >= up.high) {
            return;  // damaged arrays
        }
        low = up.low, high = up.high, prefix = prefix << 1 | 1u;
    }
    if (prefix == 0) return;
    out.tokens.push(token_of(prefix));
    if (out.counted) out.counts.push(static_cast<int32_t>(high - low));
}

template <class Symbol>
void FmText<Symbol>::continuations(Range range, int64_t depth, Continuations& out) const {
    if (range.low >= range.high) return;
    const int64_t known = head(range, depth);
    if (known >= 0) return copy_head<Symbol>(known, out);
    walk(0, range.low, range.high, 0, out);
}

// The symbol after the row's n-gram, and the row of the text one symbol on: the LF-step.
template <class Symbol>
typename FmText<Symbol>::Step FmText<Symbol>::step(int64_t row) const {
    int64_t at = row;
    uint32_t symbol = 0;
    for (int64_t level = 0; level < wavelet_.levels; ++level) {
        const uint64_t* bits = wavelet_.lines + level * stride_;
        const bool up = bit_at(bits, at);
        const int64_t before = rank(bits, at);
        at = up ? std::min(wavelet_.zeros[level] + before, rows_ - 1) : std::max<int64_t>(at - before, 0);
        symbol = symbol << 1 | static_cast<uint32_t>(up);
    }
    if (symbol > static_cast<uint64_t>(alphabet_.size)) return {0, 0};
    int64_t next = int64_t{alphabet_.first[symbol]} + at - wavelet_.leaves[symbol];
    // The text's end is followed by nothing, and its 0 is the backward text's last, the least of all suffixes.
    if (symbol == 0) next = row == samples_.origin ? 0 : next + (row < samples_.origin ? 1 : 0);
    return {symbol, std::clamp<int64_t>(next, 0, rows_ - 1)};
}

template <class Symbol>
int64_t FmText<Symbol>::position(int64_t row, int64_t depth) const {
    for (int64_t steps = 0; steps <= samples_.rate; ++steps) {
        if (bit_at(samples_.marks, row)) {
            const int64_t which = rank(samples_.marks, row);
            if (which >= samples_.count) return -1;
            int64_t last = int64_t{samples_.values[which]} * samples_.rate - steps;
            if (last < 0) last += rows_;  // the walk went over the text's end
            const int64_t begin = last - depth + 1;
            return 0 <= begin && begin < rows_ ? begin : -1;
        }
        row = step(row).row;
    }
    return -1;
}

template <class Symbol>
void FmText<Symbol>::read(int64_t document, int32_t* out) const {
    int64_t row = std::min<int64_t>(samples_.rows[document], rows_ - 1);
    for (int64_t i = 0; i < length(document); ++i) {
        const Step made = step(row);
        out[i] = token_of(made.symbol);
        row = made.row;
    }
}

template class FmText<uint16_t>;
template class FmText<uint32_t>;

}  // namespace weft

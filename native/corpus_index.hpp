// A corpus of token ids that answers which tokens follow an n-gram, how often, and where: what decoding is held to.
//
// The text is 0 d₁ 0 d₂ 0 … 0: symbols instead of tokens, 1 … σ in the order of the tokens that occur, and 0 wherever no
// n-gram may go on: between documents and in place of tokens that break a text. A state is a range [low, high) of rows whose
// suffixes begin with the same `depth` symbols, so high − low is the n-gram's count and 0 to rows is the empty n-gram.
//
// Two forms: a suffix array with its text (corpus_index_suffix.cpp), and an FM-index (corpus_index_fm.cpp), smaller and slower.
// All arrays are borrowed and outlive the object. Nothing in them, and no state, can lead out of their bounds: damaged
// arrays give wrong answers, never a crash. Whoever opens a file checks its sums first.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace weft {

// A list that grows without being cleared or copied value by value: the lists here are long and written once.
template <class T>
class Buffer {
public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }

    // Room for `count` more, to be written before `commit`.
    T* reserve(int64_t count) {
        if (size_ + count > capacity_) {
            const int64_t wanted = size_ + count > 2 * capacity_ ? size_ + count : 2 * capacity_;
            void* grown = std::realloc(data_, static_cast<size_t>(wanted) * sizeof(T));
            if (grown == nullptr) throw std::bad_alloc();
            data_ = static_cast<T*>(grown);
            capacity_ = wanted;
        }
        return data_ + size_;
    }
    void commit(int64_t count) { size_ += count; }
    void push(T value) {
        *reserve(1) = value;
        ++size_;
    }
    int64_t size() const { return size_; }
    // The values become the caller's, to be freed with std::free; null where there are none.
    T* release() {
        T* data = data_;
        data_ = nullptr;
        size_ = capacity_ = 0;
        return data;
    }

private:
    T* data_ = nullptr;
    int64_t size_ = 0, capacity_ = 0;
};

struct Range {
    int64_t low, high;
};

// Many states side by side.
struct States {
    const int64_t* low;
    const int64_t* high;
    const int32_t* depth;
    int64_t count;

    Range range(int64_t i) const { return {low[i], high[i]}; }
};

struct Continuations {
    Buffer<int32_t> tokens;  // of each state, ascending
    Buffer<int32_t> counts;
    bool counted;  // false: leave the counts out
};

// Continuations computed beforehand for the n-grams with the longest ranges: the root, "the", "of the" …
struct Heads {
    int64_t depths;             // heads of depth 0 … depths − 1
    const int64_t* first;       // (depths + 1): where a depth's heads begin
    const uint32_t* lows;       // (heads): where a head's range begins, ascending within a depth
    const int64_t* offsets;     // (heads + 1): a head's part of the next two
    const void* symbols;        // uint16 or uint32, as the index's
    const uint32_t* stops;      // sums of the counts, from the head's first continuation on
};

struct Alphabet {
    int64_t size;               // σ
    const int32_t* tokens;      // (σ): ascending
    const uint32_t* first;      // (σ + 2): rows whose suffix begins with symbol c are first[c] … first[c + 1]
    int64_t vocabulary;
    const int32_t* symbols;     // (vocabulary): a token's symbol, or 0 for one that does not occur
};

class CorpusIndex {
public:
    CorpusIndex(int64_t rows, Alphabet alphabet, Heads heads, int64_t documents, const int64_t* starts)
        : rows_(rows), alphabet_(alphabet), heads_(heads), documents_(documents), starts_(starts) {}
    virtual ~CorpusIndex() = default;

    int64_t rows() const { return rows_; }
    int64_t documents() const { return documents_; }
    int64_t vocabulary() const { return alphabet_.vocabulary; }

    // The range of the n-gram one token longer; empty where it does not occur.
    Range extend(Range range, int64_t depth, int32_t token) const {
        const uint32_t symbol = symbol_of(token);
        if (symbol == 0 || range.low >= range.high) return {0, 0};
        if (depth == 0) return {alphabet_.first[symbol], alphabet_.first[symbol + 1]};
        return narrow(range, depth, symbol);
    }
    // The same for many: token i after the n-gram of state beams[i] (null: of state i).
    virtual void extend(const States& states, const int64_t* beams, const int32_t* tokens, int64_t count, Range* out) const;
    // The tokens that follow each state's n-gram; those of state i are offsets[i] to offsets[i + 1] of `out`.
    virtual void continuations(const States& states, Continuations& out, int64_t* offsets) const = 0;
    // Where the n-gram begins in the text, for the range's row; -1 where the arrays make no sense.
    virtual int64_t position(int64_t row, int64_t depth) const = 0;
    // The tokens of documents, end to end, -1 where one broke the text; `out` has room for them.
    virtual void read(const int64_t* documents, int64_t count, int32_t* out) const = 0;

    // starts[d] is where document d begins in the text; (documents + 1), the last being the text's length.
    const int64_t* starts() const { return starts_; }
    int64_t length(int64_t document) const { return starts_[document + 1] - starts_[document] - 1; }
    // The document that holds a position of the text that is no separator's.
    int64_t document_of(int64_t position) const;

protected:
    virtual Range narrow(Range range, int64_t depth, uint32_t symbol) const = 0;

    uint32_t symbol_of(int32_t token) const {
        const bool known = 0 <= token && token < alphabet_.vocabulary;
        return known ? static_cast<uint32_t>(alphabet_.symbols[token]) : 0u;
    }
    int32_t token_of(uint32_t symbol) const {
        return symbol - 1u < static_cast<uint64_t>(alphabet_.size) ? alphabet_.tokens[symbol - 1u] : -1;
    }
    // The number of the head for this range, or -1.
    int64_t head(Range range, int64_t depth) const;

    template <class Symbol>
    void copy_head(int64_t head, Continuations& out) const {
        const int64_t begin = heads_.offsets[head], count = heads_.offsets[head + 1] - begin;
        const Symbol* symbols = static_cast<const Symbol*>(heads_.symbols) + begin;
        int32_t* tokens = out.tokens.reserve(count);
        for (int64_t i = 0; i < count; ++i) tokens[i] = token_of(symbols[i]);
        out.tokens.commit(count);
        if (!out.counted) return;
        int32_t* counts = out.counts.reserve(count);
        uint32_t before = 0;
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t stop = heads_.stops[begin + i];
            counts[i] = static_cast<int32_t>(stop - before);
            before = stop;
        }
        out.counts.commit(count);
    }

    const int64_t rows_;
    const Alphabet alphabet_;
    const Heads heads_;
    const int64_t documents_;
    const int64_t* starts_;
};

// -- suffix array --------------------------------------------------------------------------------------------------

constexpr int64_t kGathered = 1024;  // rows whose next symbols are all looked at

template <class Symbol>
class SuffixIndex final : public CorpusIndex {
public:
    SuffixIndex(int64_t rows, Alphabet alphabet, Heads heads, int64_t documents, const int64_t* starts, const Symbol* text,
               const uint32_t* suffixes)
        : CorpusIndex(rows, alphabet, heads, documents, starts), text_(text), suffixes_(suffixes) {}

    void continuations(const States& states, Continuations& out, int64_t* offsets) const override;
    int64_t position(int64_t row, int64_t depth) const override;
    void read(const int64_t* documents, int64_t count, int32_t* out) const override;

protected:
    Range narrow(Range range, int64_t depth, uint32_t symbol) const override;

private:
    void continuations(Range range, int64_t depth, Continuations& out) const;
    // The symbol that follows the row's n-gram.
    uint32_t next(int64_t row, int64_t depth) const {
        const uint64_t at = uint64_t{suffixes_[row]} + static_cast<uint64_t>(depth);
        return at < static_cast<uint64_t>(rows_) ? text_[at] : 0u;
    }
    void gather(Range range, int64_t depth, Continuations& out) const;
    // The first row from `low` on, before `high`, whose next symbol is `symbol` or more.
    int64_t lower(int64_t low, int64_t high, int64_t depth, uint32_t symbol) const;
    // The same for a row that is likely near `low`.
    int64_t gallop(int64_t low, int64_t high, int64_t depth, uint32_t symbol) const;

    const Symbol* text_;
    const uint32_t* suffixes_;
};

// -- FM-index ------------------------------------------------------------------------------------------------------

// Bits with their running sums: lines of 64 bytes, 448 bits after a word that holds how many ones lie before the line (32
// bits) and before its words 2, 4 and 6 (9 bits each). One rank touches one line.
constexpr int64_t kLineWords = 8, kLineBits = 448;
inline int64_t bit_lines(int64_t bits) { return bits / kLineBits + 1; }  // one more than needed: rank(bits) is asked for
void set_bit(uint64_t* lines, int64_t bit);
void fill_ranks(uint64_t* lines, int64_t bits);

// A wavelet matrix over the Burrows–Wheeler transform of the text read backwards: to go from an n-gram to one that is a symbol
// longer at its end is then the backward step of an FM-index.
struct Wavelet {
    int64_t levels;          // bits a symbol
    const uint64_t* lines;   // (levels, bit_lines(rows), kLineWords): the most significant bit first
    const uint32_t* zeros;   // (levels): zeros of a level
    const uint32_t* leaves;  // (σ + 1): where symbol c's run begins below the last level
};

// lines (levels, …) zeroed beforehand, zeros and leaves are written; `symbols` is used up.
template <class Symbol>
void build_wavelet(Symbol* symbols, int64_t rows, int64_t levels, int64_t alphabet, uint64_t* lines, uint32_t* zeros,
                   uint32_t* leaves);

struct Samples {
    int64_t rate;            // text positions that are multiples of it are known
    const uint64_t* marks;   // (bit_lines(rows), kLineWords): the rows whose position is known
    int64_t count;
    const uint32_t* values;  // (count): position of the n-gram's last symbol, over rate
    int64_t origin;          // the row of the text's end, the whole backward text: its LF-step is to row 0
    const uint32_t* rows;    // (documents): the row of the separator before each document
};

// One rank waits for memory, and the next level's rank for it: everything here takes many ranges, documents or rows side by
// side through one level after the other, so that they wait together.
// `Popcnt`: for machines that count bits in one instruction (corpus_index_fm_popcnt.cpp).
template <class Symbol, bool Popcnt>
class FmIndex final : public CorpusIndex {
public:
    FmIndex(int64_t rows, Alphabet alphabet, Heads heads, int64_t documents, const int64_t* starts, Wavelet wavelet,
           Samples samples)
        : CorpusIndex(rows, alphabet, heads, documents, starts),
          wavelet_(wavelet),
          samples_(samples),
          stride_(bit_lines(rows) * kLineWords) {}

    void extend(const States& states, const int64_t* beams, const int32_t* tokens, int64_t count, Range* out) const override;
    void continuations(const States& states, Continuations& out, int64_t* offsets) const override;
    int64_t position(int64_t row, int64_t depth) const override;
    void read(const int64_t* documents, int64_t count, int32_t* out) const override;

protected:
    Range narrow(Range range, int64_t depth, uint32_t symbol) const override;

private:
    // Rows of the wavelet matrix' current level, whose symbols begin with the bits of `prefix`.
    struct Node {
        uint32_t low, high, prefix;
        int32_t state;
    };
    struct Step {
        int64_t row, at;
        uint32_t symbol;
    };
    // Narrows each node to its symbol (in `prefix`).
    void descend(Node* nodes, int64_t count) const;
    // Replaces nodes by those of all symbols that occur in them, ascending.
    void spread(std::vector<Node>& nodes) const;
    // The LF-step of each row: the symbol after its n-gram, and the row of the text one symbol on.
    void step(Step* steps, int64_t count) const;
    Range leaf(const Node& node) const;
    const uint64_t* lines(int64_t level) const { return wavelet_.lines + level * stride_; }

    const Wavelet wavelet_;
    const Samples samples_;
    const int64_t stride_;
};

// The form for this machine.
template <class Symbol>
std::unique_ptr<CorpusIndex> make_fm(int64_t rows, Alphabet alphabet, Heads heads, int64_t documents, const int64_t* starts,
                                   Wavelet wavelet, Samples samples);

}  // namespace weft

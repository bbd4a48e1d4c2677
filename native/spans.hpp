// Matched words: the characters of a text that a score came from, by the document tokens in its pairs and where these stand.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// Where the tokens of a document stand in its text, as segments store it (src/weft/storage/segments/reading.py).
struct PackedSpans {
    const uint8_t* steps;    // (tokens): from the end of the token before to the beginning, plus kBack, or a mark
    const uint8_t* lengths;  // (tokens)
    int64_t tokens;
    const int32_t* listed;   // (count, 3), rising: token, start, stop of those that two bytes cannot hold
    int64_t listed_count;
    int64_t first;           // what `listed` counts the document's first token as
};
constexpr int kBack = 64, kOutside = 254, kListed = 255;

// The pairs of a score: Σ similarity · weight / z.
struct Pairs {
    const int32_t* query_token;
    const int32_t* document_token;  // −1: imputed
    const float* similarity;
    const float* weight;  // none: all 1
    int64_t count;
    double z;
};

class Text {
public:
    virtual ~Text() = default;
    virtual int64_t length() const = 0;
    virtual bool in_word(int64_t position) const = 0;  // whether a Latin letter or a digit stands there
};

struct Word {
    int64_t start, stop;           // characters
    double contribution;           // of all its pairs
    std::vector<int32_t> queries;  // tokens that met it, each once, those first that it answers most
};

// The words that add to a score, in the order of the text. Word pieces are widened to the run of Latin letters and digits
// around them; other characters stay as they are. What was imputed, is a loss, or is not of the text is left out. Every
// document token of the pairs must be less than the document's.
std::vector<Word> matched_words(const Text&, const PackedSpans&, const Pairs&);

}  // namespace weft

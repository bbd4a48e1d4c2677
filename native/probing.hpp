// Finding the few documents of a segment worth scoring: query tokens → best cells → best centroids in them → documents listed
// there → the best by their sketches.
//
// A document's similarity for a token is that of its best centroid probed, and for a token that probed none of its centroids the
// similarity at which probing stopped: XTR's imputation (eq. 4), on centroids.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "coded_segment.hpp"
#include "stopping.hpp"
#include "weighing.hpp"

namespace weft {

// Of two cells equally near, the wider one is the more likely to hold a near token. kSpread is how much of a cell's spread, the
// root of its tokens' mean squared distance to it, counts as similarity: probing 8 cells then finds what 12 did before.
constexpr double kSpread = 0.32;
uint8_t cell_lift(double spread, int64_t dim, double norm);  // spread in the units of the codes

// What documents must reach, in units of scores: by their centroids (`promise`, with what is imputed for each query token), and by
// their sketches. The last candidate of one segment sets the bar for the next, and what was imputed there is imputed here, so that
// many segments score about as many documents as one would, and nearly the same.
struct Bar {
    double promise = -INFINITY;
    double sketch = -INFINITY;
    std::vector<float> imputed{};  // (query tokens), or empty
};

struct Probe {
    int64_t cells;       // probed per query token
    int64_t centroids;   // whose documents are looked at, per query token
    int64_t candidates;  // documents found by them
    int64_t sketched;    // of which so many are kept, the best by their sketches; 0: all, and no sketch is looked at
    Bar least{};         // what they must reach
    Stop stop{};         // when to end sketching, the most promising documents first
    const float* floors = nullptr;  // (query tokens) what a token counts at the least in a sketch (XTR eq. 4), or null
    const Weighing* weighing = nullptr;  // documents are found by weighed scores, without a bar; null: by sums of maxima
};

struct Candidates {
    std::vector<int32_t> documents;
    bool checked;  // false: these documents' sketches must be checked before another try
    Bar last{};    // what the last one reached, where there were more than were asked for
    std::vector<float> estimates{};  // of their scores: by sketch, or where there is none by centroids; may be empty
};

// The most promising documents, best first, at most probe.candidates; only those with allowed[d] != 0 and tokens.
// Ties go to the lower document. With more candidates asked for than are allowed, all of them.
// With probe.sketched, at most that many, the best by sketch; ties go to the one that was found to be more promising.
// With a bar, only documents that reach it, however few.
Candidates find_candidates(const ByteKernels&, const CodedSegment&, const float* query, int64_t tokens, const uint8_t* allowed,
                           const Probe&, const uint8_t* sketch_checked);

}  // namespace weft

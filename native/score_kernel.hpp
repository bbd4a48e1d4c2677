// The scoring kernel, written once and compiled once per SIMD level.
//
// The query tokens are lanes: a vector holds one coordinate of WEFT_LANES query tokens, and a tile multiplies
// WEFT_TILE_ROWS document tokens by WEFT_TILE_VECTORS such vectors with every partial sum in a register.
// Document tokens lie in memory one after another, so tiles run straight across document boundaries: a
// document of 7 tokens costs 7 rows, not two half-empty tiles.
//
// Numerics: S_ij is accumulated over the coordinates in index order, one (fused, where the level has it)
// multiply-add each. It therefore depends neither on where a token falls in a tile, nor on the other
// documents, nor on the number of threads; and all levels with fused multiply-add agree to the last bit.
//
// Nothing here may use the standard library's templates: see kernels.hpp.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "simd.hpp"

namespace weft::WEFT_LEVEL {

constexpr int kRows = WEFT_TILE_ROWS;
constexpr int kVectors = WEFT_TILE_VECTORS;
constexpr int kLineBytes = 64, kLineFloats = 16;
constexpr float kLowest = -static_cast<float>(INFINITY);

// ---- The best k of each lane --------------------------------------------------------------------------
// Three ways to remember a selection while similarities stream by. `vector` counts within the query group.

// The running maximum: one vector of state.
struct BestOne {
    static constexpr bool kSingle = true;
    float* best;
    RowScores out;
    int vectors;

    BestOne(const DocumentBlock&, const QueryGroup& group, const Workspace& space, const RowScores& scores)
        : best(space.state), out(scores), vectors(group.vectors) {}

    WEFT_INLINE void reset(int64_t, int vector) { store(best + vector * kLanes, broadcast(kLowest)); }

    WEFT_INLINE void insert(int64_t, int64_t, int vector, const Vec* rows, int step, int count) {
        Vec top = load(best + vector * kLanes);
        for (int r = 0; r < count; ++r) top = greater(rows[r * step], top);
        store(best + vector * kLanes, top);
    }

    WEFT_INLINE void finish(int64_t row, int64_t, int vector) {
        store(out.sums + (row * vectors + vector) * kLanes, load(best + vector * kLanes));
    }
};

// The best k similarities, greatest first, without knowing whose they are: equal ones need no order.
struct BestK {
    static constexpr bool kSingle = false;
    float* best;  // (vectors, kMaxFusedK, lanes)
    const int32_t* k;
    RowScores out;
    int vectors;

    BestK(const DocumentBlock& block, const QueryGroup& group, const Workspace& space, const RowScores& scores)
        : best(space.state), k(block.k), out(scores), vectors(group.vectors) {}

    float* slots(int vector) const { return best + vector * kMaxFusedK * kLanes; }

    void reset(int64_t document, int vector) {
        float* slot = slots(vector);
        for (int s = 0; s < k[document]; ++s) store(slot + s * kLanes, broadcast(kLowest));
    }

    // K is known here, so the slots stay in registers while the rows of a tile go in.
    template <int K>
    WEFT_INLINE static void insert_few(float* slot, const Vec* rows, int step, int count) {
        Vec kept[K];
        WEFT_UNROLL
        for (int s = 0; s < K; ++s) kept[s] = load(slot + s * kLanes);
        for (int r = 0; r < count; ++r) {
            const Vec x = rows[r * step];
            WEFT_UNROLL
            for (int s = K - 1; s > 0; --s) kept[s] = greater(lesser(x, kept[s - 1]), kept[s]);
            kept[0] = greater(x, kept[0]);
        }
        WEFT_UNROLL
        for (int s = 0; s < K; ++s) store(slot + s * kLanes, kept[s]);
    }

    static void insert_many(float* slot, int k, const Vec* rows, int step, int count) {
        for (int r = 0; r < count; ++r) {
            const Vec x = rows[r * step];
            for (int s = k - 1; s > 0; --s) {
                const Vec above = load(slot + (s - 1) * kLanes);
                store(slot + s * kLanes, greater(lesser(x, above), load(slot + s * kLanes)));
            }
            store(slot, greater(x, load(slot)));
        }
    }

    void insert(int64_t document, int64_t, int vector, const Vec* rows, int step, int count) {
        float* slot = slots(vector);
        switch (k[document]) {
            case 1: return insert_few<1>(slot, rows, step, count);
            case 2: return insert_few<2>(slot, rows, step, count);
            case 3: return insert_few<3>(slot, rows, step, count);
            case 4: return insert_few<4>(slot, rows, step, count);
            case 5: return insert_few<5>(slot, rows, step, count);
            case 6: return insert_few<6>(slot, rows, step, count);
            case 7: return insert_few<7>(slot, rows, step, count);
            case 8: return insert_few<8>(slot, rows, step, count);
            default: return insert_many(slot, k[document], rows, step, count);
        }
    }

    void finish(int64_t row, int64_t document, int vector) {
        const float* slot = slots(vector);
        Vec sum = load(slot);
        for (int s = 1; s < k[document]; ++s) sum = sum + load(slot + s * kLanes);
        store(out.sums + (row * vectors + vector) * kLanes, sum);
    }
};

// The best k similarities and the salience of the token each belongs to. The selection is by similarity
// alone, and only a strictly greater one displaces: among equals the first document token wins.
struct BestWeighted {
    static constexpr bool kSingle = false;
    float* best;     // (vectors, kMaxFusedK, lanes)
    float* weights;  // the same
    const float* salience;
    const int32_t* k;
    RowScores out;
    int vectors;

    BestWeighted(const DocumentBlock& block, const QueryGroup& group, const Workspace& space,
                 const RowScores& scores)
        : best(space.state), weights(space.state + int64_t{group.vectors} * kMaxFusedK * kLanes),
          salience(block.salience), k(block.k), out(scores), vectors(group.vectors) {}

    int slots_of(int64_t document) const { return k ? k[document] : 1; }

    void reset(int64_t document, int vector) {
        const int64_t start = int64_t{vector} * kMaxFusedK * kLanes;
        for (int s = 0; s < slots_of(document); ++s) {
            store(best + start + s * kLanes, broadcast(kLowest));
            store(weights + start + s * kLanes, broadcast(0.0f));
        }
    }

    void insert(int64_t document, int64_t token, int vector, const Vec* rows, int step, int count) {
        float* value = best + int64_t{vector} * kMaxFusedK * kLanes;
        float* weight = weights + int64_t{vector} * kMaxFusedK * kLanes;
        const int last = slots_of(document) - 1;
        for (int r = 0; r < count; ++r) {
            const Vec x = rows[r * step];
            const Vec u = broadcast(salience[token + r]);
            // From the last slot up, so that each slot still sees its neighbour as it was before x.
            Vec kept = load(value + last * kLanes), kept_u = load(weight + last * kLanes);
            for (int s = last; s > 0; --s) {
                const Vec above = load(value + (s - 1) * kLanes), above_u = load(weight + (s - 1) * kLanes);
                const Vec moved = where_greater(x, above, above, x);
                const Vec moved_u = where_greater(x, above, above_u, u);
                store(value + s * kLanes, where_greater(x, kept, moved, kept));
                store(weight + s * kLanes, where_greater(x, kept, moved_u, kept_u));
                kept = above;
                kept_u = above_u;
            }
            store(value, greater(x, kept));
            store(weight, where_greater(x, kept, u, kept_u));
        }
    }

    void finish(int64_t row, int64_t document, int vector) {
        const int64_t start = int64_t{vector} * kMaxFusedK * kLanes;
        Vec sum = broadcast(0.0f), mass = broadcast(0.0f);
        for (int s = 0; s < slots_of(document); ++s) {
            const Vec u = load(weights + start + s * kLanes);
            sum = multiply_add(u, load(best + start + s * kLanes), sum);
            mass = mass + u;
        }
        store(out.sums + (row * vectors + vector) * kLanes, sum);
        store(out.masses + (row * vectors + vector) * kLanes, mass);
    }
};

// Not a selection at all: every similarity, for those who choose afterwards.
struct All {
    static constexpr bool kSingle = false;
    float* out;  // (tokens of the block, vectors, lanes)
    int64_t begin;
    int vectors;

    All(const DocumentBlock& block, const QueryGroup& group, const Workspace&, const RowScores& scores)
        : out(scores.sums), begin(block.offsets[block.first_document]), vectors(group.vectors) {}

    void reset(int64_t, int) {}
    void insert(int64_t, int64_t token, int vector, const Vec* rows, int step, int count) {
        for (int r = 0; r < count; ++r) {
            store(out + ((token + r - begin) * vectors + vector) * kLanes, rows[r * step]);
        }
    }
    void finish(int64_t, int64_t, int) {}
};

// ---- Tiles --------------------------------------------------------------------------------------------

struct Tile {
    const float* rows;  // kRows rows of floats
    const char* ahead;  // the next tile, as it lies in the collection
    int64_t begin;      // its first token, and one past its last: fewer than kRows at the end of a block
    int64_t end;
    int64_t document;   // the document of the first token
};

// A whole tile of floats is read in place. Any other is copied or converted to the workspace, so that nothing
// is read beyond the last token; the rows left over hold old values, which nobody looks at.
inline const float* tile_rows(const DocumentBlock& block, const Workspace& space, int64_t begin, int64_t end) {
    const int64_t start = begin * block.dim, count = (end - begin) * block.dim;
    if (block.half) {
        convert_halves(static_cast<const uint16_t*>(block.values) + start, count, space.tile);
        return space.tile;
    }
    const float* rows = static_cast<const float*>(block.values) + start;
    if (end - begin == kRows) return rows;
    std::memcpy(space.tile, rows, sizeof(float) * static_cast<size_t>(count));
    return space.tile;
}

// S of kRows document tokens and V vectors of query tokens, all of it in registers. `ahead`, unless null, is
// where the next tile lies: its cache lines are asked for a few at a time, because the processor does not
// guess them from kRows short streams, and waiting for memory would take longer than multiplying.
template <int V>
WEFT_INLINE void multiply_tile(const float* rows, int64_t dim, const float* panel, const char* ahead, int ahead_lines,
                               Vec (&S)[kRows][V]) {
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
        WEFT_UNROLL
        for (int v = 0; v < V; ++v) S[r][v] = broadcast(0.0f);
    }
    for (int64_t x = 0; x < dim;) {
        if (ahead) {
            for (int line = 0; line < ahead_lines; ++line, ahead += kLineBytes) prefetch(ahead);
        }
        for (const int64_t stop = x + kLineFloats < dim ? x + kLineFloats : dim; x < stop; ++x) {
            Vec q[V];
            WEFT_UNROLL
            for (int v = 0; v < V; ++v) q[v] = load(panel + (x * V + v) * kLanes);
            WEFT_UNROLL
            for (int r = 0; r < kRows; ++r) {
                const Vec d = broadcast(rows[r * dim + x]);
                WEFT_UNROLL
                for (int v = 0; v < V; ++v) S[r][v] = multiply_add(d, q[v], S[r][v]);
            }
        }
    }
}

// Hand the rows of a tile to the selections of the documents they belong to.
template <int V, class Selection>
WEFT_INLINE void select_from_tile(Selection& selection, const DocumentBlock& block, const Tile& tile, int vector,
                                  const Vec (&S)[kRows][V]) {
    const int64_t* offsets = block.offsets;
    int64_t document = tile.document;
    if (Selection::kSingle && offsets[document] < tile.begin && offsets[document + 1] > tile.begin + kRows) {
        // In the midst of one document, as most tiles are: straight from the registers.
        WEFT_UNROLL
        for (int v = 0; v < V; ++v) selection.insert(document, tile.begin, vector + v, &S[0][v], V, kRows);
        return;
    }
    // The accumulators stay in registers only if nothing indexes them at run time: index a copy.
    Vec copy[kRows][V];
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
        WEFT_UNROLL
        for (int v = 0; v < V; ++v) copy[r][v] = S[r][v];
    }
    for (int64_t from = tile.begin; from < tile.end; ++document) {
        const int64_t first = offsets[document], last = offsets[document + 1];
        if (first == last) continue;
        const int64_t to = last < tile.end ? last : tile.end;
        for (int v = 0; v < V; ++v) {
            if (from == first) selection.reset(document, vector + v);
            selection.insert(document, from, vector + v, &copy[from - tile.begin][v], V, static_cast<int>(to - from));
            if (to == last) selection.finish(document - block.first_document, document, vector + v);
        }
        from = to;
    }
}

template <int V, class Selection>
void score_panel(Selection& selection, const DocumentBlock& block, const Tile& tile, const QueryGroup& group,
                 int vector) {
    if constexpr (V > 1) {  // the last panel may be narrower
        if (group.vectors - vector < V) return score_panel<V - 1>(selection, block, tile, group, vector);
    }
    // The first panel of a tile fetches for all of them.
    const char* ahead = vector == 0 ? tile.ahead : nullptr;
    Vec S[kRows][V];
    multiply_tile<V>(tile.rows, block.dim, group.panels + vector * kLanes * block.dim, ahead,
                     block.half ? (kRows + 1) / 2 : kRows, S);
    select_from_tile<V>(selection, block, tile, vector, S);
}

template <class Selection>
void score_block(const DocumentBlock& block, const QueryGroup& group, const Workspace& space,
                 const RowScores& out) {
    Selection selection(block, group, space, out);
    const int64_t stop = block.offsets[block.last_document];
    Tile tile{};
    tile.document = block.first_document;
    for (tile.begin = block.offsets[block.first_document]; tile.begin < stop; tile.begin = tile.end) {
        tile.end = tile.begin + kRows < stop ? tile.begin + kRows : stop;
        tile.rows = tile_rows(block, space, tile.begin, tile.end);
        tile.ahead = static_cast<const char*>(block.values) + tile.end * block.dim * (block.half ? 2 : 4);
        while (block.offsets[tile.document + 1] <= tile.begin) ++tile.document;
        for (int vector = 0; vector < group.vectors; vector += kVectors) {
            score_panel<kVectors>(selection, block, tile, group, vector);
        }
    }
}

inline void row_scores(const DocumentBlock& block, const QueryGroup& group, const Workspace& space,
                       const RowScores& out) {
    if (block.salience) return score_block<BestWeighted>(block, group, space, out);
    if (block.k) return score_block<BestK>(block, group, space, out);
    return score_block<BestOne>(block, group, space, out);
}

inline void similarities(const DocumentBlock& block, const QueryGroup& group, const Workspace& space, float* out) {
    score_block<All>(block, group, space, RowScores{out, nullptr});
}

constexpr Kernels kKernels{kLanes, kRows, kVectors, row_scores, similarities};

}  // namespace weft::WEFT_LEVEL

// The vectors of highest inner product, exactly: all vectors go by once, however many queries there are.
//
// For few queries the time is that of reading the vectors, for many that of the multiplications. A score is summed up
// in the same order whatever it is computed with, so a query's results do not depend on the other queries, on threads
// or on masks.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "simd.hpp"
#include "team.hpp"

namespace mar {

constexpr int ROWS = 4;        // vectors that are multiplied together
constexpr int QUERIES = 6;     // queries that they are multiplied with
constexpr int64_t ITEM = 128;  // vectors that a thread takes at a time
constexpr int64_t AHEAD = 2;   // blocks of ROWS vectors that are fetched before they are needed

struct Hit {
    float score;
    int64_t row;
};

// True if a hit comes before another.
inline bool better(const Hit& a, const Hit& b) { return a.score > b.score || (a.score == b.score && a.row < b.row); }

// The best hits of one query so far, the worst of them on top.
class Best {
  public:
    void reset(int64_t wanted) {
        wanted_ = wanted;
        hits_.clear();
        hits_.reserve(wanted);
    }

    // Scores below it need not be offered.
    float threshold() const { return static_cast<int64_t>(hits_.size()) < wanted_ ? -INFINITY : hits_.front().score; }

    void offer(const Hit& hit) {
        if (static_cast<int64_t>(hits_.size()) == wanted_) {
            if (!better(hit, hits_.front())) return;
            std::pop_heap(hits_.begin(), hits_.end(), better);
            hits_.back() = hit;
        } else {
            hits_.push_back(hit);
        }
        std::push_heap(hits_.begin(), hits_.end(), better);
    }

    const std::vector<Hit>& hits() const { return hits_; }

  private:
    int64_t wanted_ = 0;
    std::vector<Hit> hits_;
};

inline __m512 load(const float* at) { return _mm512_loadu_ps(at); }
inline __m512 load(const uint16_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
inline __m512 load(const float* at, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, at); }
inline __m512 load(const uint16_t* at, __mmask16 mask) {
    uint16_t values[16] = {};
    std::memcpy(values, at, sizeof(uint16_t) * static_cast<size_t>(__builtin_popcount(mask)));
    return load(values);
}

// The sums of four vectors of 16.
inline __m128 sums(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

template <class T>
class Search {
  public:
    Search(Team& team, const float* queries, int64_t count, const T* vectors, int64_t total, int64_t dim,
           int64_t stride, const uint8_t* bits, int64_t wanted)
        : team_(team),
          count_(count),
          vectors_(vectors),
          total_(total),
          dim_(dim),
          stride_(stride),
          bits_(bits),
          wanted_(wanted),
          width_((dim + 15) / 16 * 16),
          best_(count * team.size()) {
        // Padded with zeros, so that the last, incomplete step multiplies with nothing.
        queries_.reset(static_cast<float*>(std::aligned_alloc(64, std::max<int64_t>(1, count) * width_ * 4)));
        if (!queries_) throw std::bad_alloc();
        for (int64_t query = 0; query < count; ++query) {
            float* const to = queries_.get() + query * width_;
            std::memcpy(to, queries + query * dim, dim * 4);
            std::fill(to + dim, to + width_, 0.f);
        }
        for (auto& best : best_) best.reset(wanted);
    }

    void run(float* scores, int64_t* rows) {
        const int64_t items = (total_ + ITEM - 1) / ITEM;
        team_.each(static_cast<int>(items), [this](int item, int thread) {
            const int64_t start = item * ITEM, stop = std::min(total_, start + ITEM);
            for (int64_t row = start; row < stop; row += ROWS) block(row, stop, best_.data() + thread * count_);
        });
        std::vector<Hit> all;
        for (int64_t query = 0; query < count_; ++query) {
            all.clear();
            for (int thread = 0; thread < team_.size(); ++thread) {
                const auto& hits = best_[thread * count_ + query].hits();
                all.insert(all.end(), hits.begin(), hits.end());
            }
            std::sort(all.begin(), all.end(), better);
            for (int64_t place = 0; place < wanted_; ++place) {
                const bool there = place < static_cast<int64_t>(all.size());
                scores[query * wanted_ + place] = there ? all[place].score : -INFINITY;
                rows[query * wanted_ + place] = there ? all[place].row : -1;
            }
        }
    }

  private:
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };

    // ROWS vectors against all queries.
    void block(int64_t row, int64_t stop, Best* best) {
        const int64_t left = std::min<int64_t>(ROWS, stop - row);
        uint32_t wanted = (1u << left) - 1;
        if (bits_ != nullptr) wanted &= bits_[row >> 3] >> (row & 7);
        if (wanted == 0) return;
        const T* from[ROWS];  // the last one again where there are fewer
        for (int64_t place = 0; place < ROWS; ++place)
            from[place] = vectors_ + (row + std::min(place, left - 1)) * stride_;
        int64_t query = 0;
        for (; query + QUERIES <= count_; query += QUERIES) tile<QUERIES>(from, query, row, wanted, best);
        rest<QUERIES - 1>(from, query, row, wanted, best);
    }

    // The last queries, N at most.
    template <int N>
    void rest(const T* const (&from)[ROWS], int64_t query, int64_t row, uint32_t wanted, Best* best) {
        if (count_ - query == N)
            tile<N>(from, query, row, wanted, best);
        else if constexpr (N > 1)
            rest<N - 1>(from, query, row, wanted, best);
    }

    template <int N>
    void tile(const T* const (&from)[ROWS], int64_t query, int64_t row, uint32_t wanted, Best* best) {
        const float* const queries = queries_.get() + query * width_;
        __m512 sum[N][ROWS];
        for (int q = 0; q < N; ++q)
            for (int r = 0; r < ROWS; ++r) sum[q][r] = _mm512_setzero_ps();
        const auto step = [&](int64_t at, const __m512(&vector)[ROWS]) {
            for (int q = 0; q < N; ++q) {
                const __m512 values = _mm512_load_ps(queries + q * width_ + at);
                for (int r = 0; r < ROWS; ++r) sum[q][r] = _mm512_fmadd_ps(values, vector[r], sum[q][r]);
            }
        };
        const int64_t whole = dim_ / 16 * 16;
        const int64_t ahead = AHEAD * ROWS * stride_;
        for (int64_t at = 0; at < whole; at += 16) {
            __m512 vector[ROWS];
            for (int r = 0; r < ROWS; ++r) {
                vector[r] = load(from[r] + at);
                if (query == 0) _mm_prefetch(reinterpret_cast<const char*>(from[r] + at + ahead), _MM_HINT_T0);
            }
            step(at, vector);
        }
        if (whole < dim_) {
            const __mmask16 mask = first(static_cast<int>(dim_ - whole));
            __m512 vector[ROWS];
            for (int r = 0; r < ROWS; ++r) vector[r] = load(from[r] + whole, mask);
            step(whole, vector);
        }
        for (int q = 0; q < N; ++q) {
            Best& own = best[query + q];
            const __m128 scores = sums(sum[q][0], sum[q][1], sum[q][2], sum[q][3]);
            uint32_t good =
                wanted & static_cast<uint32_t>(_mm_movemask_ps(_mm_cmpge_ps(scores, _mm_set1_ps(own.threshold()))));
            if (good == 0) continue;
            float values[ROWS];
            _mm_storeu_ps(values, scores);
            for (; good != 0; good &= good - 1) {
                const int place = __builtin_ctz(good);
                own.offer({values[place], row + place});
            }
        }
    }

    Team& team_;
    const int64_t count_;
    const T* const vectors_;
    const int64_t total_, dim_, stride_;
    const uint8_t* const bits_;
    const int64_t wanted_, width_;
    std::unique_ptr<float, Free> queries_;
    std::vector<Best> best_;
};

}  // namespace mar

extern "C" {

// A team of threads for searches, one at a time; null where there are no more threads.
void* mar_exact_open(int32_t threads) {
    try {
        return new mar::Team(threads);
    } catch (const std::exception&) {
        return nullptr;
    }
}

void mar_exact_close(void* team) { delete static_cast<mar::Team*>(team); }

// The best `wanted` of `total` vectors of `dim` values (float16 if `half`), each `stride` values after the one before,
// for `count` queries, by falling score, equal ones by row; -inf and -1 where there are fewer. With `bits`, of those
// whose bit is set. 0 if there was enough memory.
int32_t mar_exact_search(void* team, const float* queries, int64_t count, const void* vectors, int64_t total,
                         int64_t dim, int64_t stride, int32_t half, const uint8_t* bits, int64_t wanted, float* scores,
                         int64_t* rows) {
    try {
        mar::Team& threads = *static_cast<mar::Team*>(team);
        if (half)
            mar::Search<uint16_t>(threads, queries, count, static_cast<const uint16_t*>(vectors), total, dim, stride,
                                  bits, wanted)
                .run(scores, rows);
        else
            mar::Search<float>(threads, queries, count, static_cast<const float*>(vectors), total, dim, stride, bits,
                               wanted)
                .run(scores, rows);
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}
}

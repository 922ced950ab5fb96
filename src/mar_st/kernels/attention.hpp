// Attention of one head within one text, in float32.

#pragma once

#include <cmath>

#include "linear.hpp"

namespace mar {

// Parameters of the attention of a layer.
struct Heads {
    int size, queries, keys;  // numbers of a head; heads
    float scale;
    bool causal;
    int window;                          // a token sees those at most so far away; -1 for all
    const float *cosines, *sines;        // (positions, size / 2) or null
    const float *query_norm, *key_norm;  // weights of a root-mean-square norm of each head, or null
    float eps;
};

constexpr int TOGETHER = 12;  // queries that are computed together: with two columns of 16, 24 sums in registers

// Memory of a thread; it must be resized for the longest text before a head is computed.
struct Desk {
    Buffer<float> keys, values, queries, scores, block;

    void resize(int length, int size) {
        const size_t all = padded(length) + 16;  // columns go in pairs
        keys.get(size * all);
        values.get(all * padded(size));
        queries.get(static_cast<size_t>(TOGETHER) * size + 16);
        scores.get(TOGETHER * all);
        block.get(static_cast<size_t>(16) * padded(size));
    }
};

// A query or key: normalised, rotated, scaled.
inline void turned(const float* from, const Heads& heads, const float* norm, int64_t position, float scale,
                   float* out) {
    const int half = heads.size / 2;
    if (norm) {
        normalise(from, heads.size, norm, nullptr, heads.eps, true, out);
        from = out;
    }
    const __m512 factor = _mm512_set1_ps(scale);
    if (!heads.cosines) {
        for (int i = 0; i < heads.size; i += 16) {
            const __mmask16 mask = first(heads.size - i);
            _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(mask, from + i)));
        }
        return;
    }
    const float *cosines = heads.cosines + position * half, *sines = heads.sines + position * half;
    for (int i = 0; i < half; i += 16) {
        const __mmask16 mask = first(half - i);
        const __m512 a = _mm512_maskz_loadu_ps(mask, from + i), b = _mm512_maskz_loadu_ps(mask, from + i + half);
        const __m512 cosine = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(mask, cosines + i));
        const __m512 sine = _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(mask, sines + i));
        _mm512_mask_storeu_ps(out + i, mask, _mm512_fmsub_ps(a, cosine, _mm512_mul_ps(b, sine)));
        _mm512_mask_storeu_ps(out + i + half, mask, _mm512_fmadd_ps(b, cosine, _mm512_mul_ps(a, sine)));
    }
}

// Scores of queries to probabilities, in place; what a query does not see gets 0.
inline void softmax(float* scores, int stride, int from, int rows, int length, const Heads& heads) {
    for (int r = 0; r < rows; ++r) {
        const int i = from + r;
        const int low = heads.window >= 0 && i > heads.window ? i - heads.window : 0;
        int high = heads.window >= 0 && i + heads.window + 1 < length ? i + heads.window + 1 : length;
        if (heads.causal) high = i + 1;
        float* row = scores + static_cast<size_t>(r) * stride;
        const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const auto seen = [&](int j) {
            const __m512i place = _mm512_add_epi32(steps, _mm512_set1_epi32(j));
            return static_cast<__mmask16>(_mm512_cmpge_epi32_mask(place, _mm512_set1_epi32(low)) &
                                          _mm512_cmplt_epi32_mask(place, _mm512_set1_epi32(high)));
        };
        __m512 most = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
        for (int j = 0; j < stride; j += 16) most = _mm512_mask_max_ps(most, seen(j), most, _mm512_load_ps(row + j));
        const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(most));
        for (int j = 0; j < stride; j += 16) {
            const __m512 value = _mm512_maskz_mov_ps(seen(j), exp(_mm512_sub_ps(_mm512_load_ps(row + j), top)));
            sum = _mm512_add_ps(sum, value);
            _mm512_store_ps(row + j, value);
        }
        const __m512 share = _mm512_set1_ps(1 / _mm512_reduce_add_ps(sum));
        for (int j = 0; j < stride; j += 16) _mm512_store_ps(row + j, _mm512_mul_ps(_mm512_load_ps(row + j), share));
    }
}

// Scores of TOGETHER queries (size, TOGETHER) with C columns of 16 keys (size, C, 16).
template <int C>
inline void score(const float* queries, const float* keys, int size, float* scores, int stride) {
    __m512 sums[TOGETHER][C];
#pragma GCC unroll 12
    for (auto& row : sums)
        for (auto& sum : row) sum = _mm512_setzero_ps();
    for (int d = 0; d < size; ++d, queries += TOGETHER, keys += 16 * C) {
#pragma GCC unroll 12
        for (int r = 0; r < TOGETHER; ++r) {
            const __m512 query = _mm512_set1_ps(queries[r]);
#pragma GCC unroll 2
            for (int c = 0; c < C; ++c) sums[r][c] = _mm512_fmadd_ps(query, _mm512_load_ps(keys + 16 * c), sums[r][c]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < TOGETHER; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) _mm512_store_ps(scores + static_cast<size_t>(r) * stride + 16 * c, sums[r][c]);
}

// Means of values (length, width), C columns of 16 of them, weighted by each of TOGETHER rows of scores; the first
// `rows` of these go to `out`, `count` numbers of each.
template <int C>
inline void mean(const float* scores, int stride, const float* values, int length, int width, int rows, int count,
                 float* out, size_t step) {
    __m512 sums[TOGETHER][C];
#pragma GCC unroll 12
    for (auto& row : sums)
        for (auto& sum : row) sum = _mm512_setzero_ps();
    for (int j = 0; j < length; ++j, ++scores, values += width) {
#pragma GCC unroll 12
        for (int r = 0; r < TOGETHER; ++r) {
            const __m512 share = _mm512_set1_ps(scores[static_cast<size_t>(r) * stride]);
#pragma GCC unroll 2
            for (int c = 0; c < C; ++c)
                sums[r][c] = _mm512_fmadd_ps(share, _mm512_load_ps(values + 16 * c), sums[r][c]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < TOGETHER; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c)
            if (r < rows) _mm512_mask_storeu_ps(out + r * step + 16 * c, first(count - 16 * c), sums[r][c]);
}

// One head of a text of `length` tokens, with columns in groups of C. `qkv` is its first row, with queries, keys and
// values of all heads side by side; the result goes to the head's place in the rows of `out`.
template <int C>
void attend(const float* qkv, const int64_t* positions, int length, int head, const Heads& heads, Desk& desk,
            float* out) {
    const int size = heads.size, width = (heads.queries + 2 * heads.keys) * size, wide = padded(size);
    const int columns = ceil_div(length, 16 * C), stride = columns * 16 * C;
    const int shared = head / (heads.queries / heads.keys);
    float *keys = desk.keys.data(), *values = desk.values.data(), *queries = desk.queries.data();
    float *scores = desk.scores.data(), *block = desk.block.data();
    for (int j = 0; j < stride; j += 16) {
        const int count = length - j < 16 ? length - j : 16;
        for (int r = 0; r < count; ++r) {
            const float* from = qkv + static_cast<size_t>(j + r) * width + (heads.queries + shared) * size;
            turned(from, heads, heads.key_norm, positions[j + r], 1, block + r * wide);
            for (int d = 0; d < wide; d += 16)
                _mm512_store_ps(values + static_cast<size_t>(j + r) * wide + d,
                                _mm512_maskz_loadu_ps(first(size - d), from + heads.keys * size + d));
        }
        float* to = keys + static_cast<size_t>(j / (16 * C)) * size * 16 * C + j % (16 * C);
        for (int d = 0; d < size; d += 16)
            transpose(block + d, wide, count, first(size - d), to + static_cast<size_t>(d) * 16 * C, 16 * C);
    }
    for (int i = 0; i < length; i += TOGETHER) {
        const int rows = length - i < TOGETHER ? length - i : TOGETHER;
        for (int r = 0; r < rows; ++r)
            turned(qkv + static_cast<size_t>(i + r) * width + head * size, heads, heads.query_norm, positions[i + r],
                   heads.scale, block + r * wide);
        for (int d = 0; d < size; d += 16)  // what is written beyond a row's 12 numbers, the next row replaces
            transpose(block + d, wide, rows, first(size - d), queries + d * TOGETHER, TOGETHER);
        for (int column = 0; column < columns; ++column)
            score<C>(queries, keys + static_cast<size_t>(column) * size * 16 * C, size, scores + column * 16 * C,
                     stride);
        softmax(scores, stride, i, rows, length, heads);
        const size_t step = static_cast<size_t>(heads.queries) * size;
        float* to = out + i * step + head * size;
        for (int d = 0; d < size; d += 32) {
            if (size - d > 16)
                mean<2>(scores, stride, values + d, length, wide, rows, size - d, to + d, step);
            else
                mean<1>(scores, stride, values + d, length, wide, rows, size - d, to + d, step);
        }
    }
}

}  // namespace mar

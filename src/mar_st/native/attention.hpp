// Attention of one head within one text, in float32.

#pragma once

#include <cmath>

#include "linear.hpp"

namespace mar {

// What attention needs to know of a layer.
struct Heads {
    int size, queries, keys;  // numbers of a head; heads
    float scale;
    bool causal;
    int window;                          // a token sees those at most so far away; -1 for all
    const float *cosines, *sines;        // (positions, size / 2) or null
    const float *query_norm, *key_norm;  // weights of a root-mean-square norm of each head, or null
    float eps;
};

constexpr int TOGETHER = 8;  // queries whose scores are computed together

// Memory of a thread.
struct Desk {
    Buffer<float> keys, queries, scores;
};

// A query or key: normalised, rotated, scaled.
inline void turned(const float* from, const Heads& heads, const float* norm, int64_t position, float scale,
                   float* out) {
    const int half = heads.size / 2;
    if (norm) {
        normalise(from, heads.size, norm, nullptr, heads.eps, true, out);
        from = out;
    }
    if (!heads.cosines) {
        for (int i = 0; i < heads.size; ++i) out[i] = from[i] * scale;
        return;
    }
    const float *cosines = heads.cosines + position * half, *sines = heads.sines + position * half;
    for (int i = 0; i < half; ++i) {
        const float a = from[i], b = from[i + half];
        out[i] = (a * cosines[i] - b * sines[i]) * scale;
        out[i + half] = (b * cosines[i] + a * sines[i]) * scale;
    }
}

// Scores of TOGETHER queries to probabilities, in place; returns nothing a row does not see: that is 0.
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

// One head of a text of `length` tokens. `qkv` is its first row, with queries, keys and values of all heads side by
// side; the result goes to the head's place in the rows of `out`.
inline void attend(const float* qkv, const int64_t* positions, int length, int head, const Heads& heads, Desk& desk,
                   float* out) {
    const int size = heads.size, width = (heads.queries + 2 * heads.keys) * size, stride = padded(length);
    const int shared = head / (heads.queries / heads.keys);
    const float* value = qkv + (heads.queries + heads.keys + shared) * size;
    float* keys = desk.keys.get(static_cast<size_t>(size) * stride);
    float* queries = desk.queries.get(static_cast<size_t>(TOGETHER + 1) * padded(size));
    float* scores = desk.scores.get(static_cast<size_t>(TOGETHER) * stride);
    float* key = queries + TOGETHER * padded(size);
    for (int j = 0; j < stride; ++j) {
        if (j < length)
            turned(qkv + static_cast<size_t>(j) * width + (heads.queries + shared) * size, heads, heads.key_norm,
                   positions[j], 1, key);
        for (int d = 0; d < size; ++d) keys[static_cast<size_t>(d) * stride + j] = j < length ? key[d] : 0;
    }
    for (int i = 0; i < length; i += TOGETHER) {
        const int rows = length - i < TOGETHER ? length - i : TOGETHER;
        for (int r = 0; r < TOGETHER; ++r)  // rows that are too many are computed and forgotten
            turned(qkv + static_cast<size_t>(r < rows ? i + r : i) * width + head * size, heads, heads.query_norm,
                   positions[r < rows ? i + r : i], heads.scale, queries + r * size);
        for (int j = 0; j < stride; j += 16) {
            __m512 sums[TOGETHER];
            for (auto& sum : sums) sum = _mm512_setzero_ps();
            for (int d = 0; d < size; ++d) {
                const __m512 column = _mm512_load_ps(keys + static_cast<size_t>(d) * stride + j);
#pragma GCC unroll 8
                for (int r = 0; r < TOGETHER; ++r)
                    sums[r] = _mm512_fmadd_ps(_mm512_set1_ps(queries[r * size + d]), column, sums[r]);
            }
#pragma GCC unroll 8
            for (int r = 0; r < TOGETHER; ++r) _mm512_store_ps(scores + static_cast<size_t>(r) * stride + j, sums[r]);
        }
        softmax(scores, stride, i, TOGETHER, length, heads);
        for (int d = 0; d < size; d += 16) {
            const __mmask16 mask = first(size - d);
            __m512 sums[TOGETHER];
            for (auto& sum : sums) sum = _mm512_setzero_ps();
            for (int j = 0; j < length; ++j) {
                const __m512 row = _mm512_maskz_loadu_ps(mask, value + static_cast<size_t>(j) * width + d);
#pragma GCC unroll 8
                for (int r = 0; r < TOGETHER; ++r)
                    sums[r] =
                        _mm512_fmadd_ps(_mm512_set1_ps(scores[static_cast<size_t>(r) * stride + j]), row, sums[r]);
            }
#pragma GCC unroll 8
            for (int r = 0; r < TOGETHER; ++r)
                if (r < rows)
                    _mm512_mask_storeu_ps(out + static_cast<size_t>(i + r) * heads.queries * size + head * size + d,
                                          mask, sums[r]);
        }
    }
}

}  // namespace mar

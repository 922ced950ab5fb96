// Linear layers with weights and activations of 8 bits: y = x w^T + b.
//
// Every 128 columns of a row of x, and of a row of w, share a scale of their own. Activations are signed, rounded
// when they come; weights are stored with 128 added, as the processor multiplies signed with unsigned numbers, and
// what that adds, 128 times the sum of the activations, is where the sums start. Sums within a group are exact
// integers, so a row's result does not depend on the rows that are computed with it.
//
// A few rows against a large matrix cost what it takes to read the matrix. It is laid out in the order in which it
// is read: blocks of 32 outputs, in them steps of four inputs.

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "simd.hpp"
#include "team.hpp"

namespace mar {

constexpr int GROUP = 128;   // inputs that share a scale
constexpr int WIDTH = 32;    // outputs of a block
constexpr int ROWS = 12;     // rows that are multiplied with a block at a time: 24 sums in registers
constexpr int AHEAD = 6144;  // bytes of weights that are asked for before they are needed

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }
inline int padded(int inputs) { return ceil_div(inputs, 16) * 16; }

// Memory that grows and is never copied.
template <class T>
class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }

    T* get(size_t size) {
        if (size > size_) {
            std::free(data_);
            size_ = 0;
            data_ = static_cast<T*>(std::aligned_alloc(64, (size * sizeof(T) + 63) / 64 * 64));
            if (!data_) throw std::bad_alloc();
            size_ = size;
        }
        return data_;
    }
    T* data() const { return data_; }

  private:
    T* data_ = nullptr;
    size_t size_ = 0;
};

// A layer as the caller describes it: places in the file of weights, -1 for none.
struct Linear {
    int64_t weight, scales, bias;
    int32_t inputs, outputs;
};

// Rows of activations in 8 bits, in parts that are multiplied together: in a part, four inputs of each row, then the
// next four, in the order in which they are read.
struct Rows {
    Buffer<int8_t> values;
    Buffer<float> scales;    // (rows, groups)
    Buffer<int32_t> starts;  // (rows, groups)
    int rows = 0, inputs = 0, stride = 0, groups = 0, parts = 0;

    void resize(int new_rows, int new_inputs) {
        rows = new_rows, inputs = new_inputs;
        stride = padded(inputs), groups = ceil_div(inputs, GROUP), parts = ceil_div(rows, ROWS);
        values.get(static_cast<size_t>(rows) * stride);
        scales.get(static_cast<size_t>(rows) * groups);
        starts.get(static_cast<size_t>(rows) * groups);
    }

    int begin(int part) const { return static_cast<int>(static_cast<int64_t>(rows) * part / parts); }

    void set(int row, const float* x) {
        for (int group = 0; group < groups; ++group) set(row, group, x + group * GROUP);
    }

    // A group of a row; x begins with it.
    void set(int row, int group, const float* x) {
        const int part = static_cast<int>((static_cast<int64_t>(row + 1) * parts - 1) / rows), from = begin(part);
        const int step = begin(part + 1) - from, start = group * GROUP;
        const int size = stride - start < GROUP ? stride - start : GROUP, given = inputs - start;
        int8_t* to =
            values.data() + static_cast<size_t>(from) * stride + static_cast<size_t>(start) * step + (row - from) * 4;
        __m512 largest = _mm512_setzero_ps();
        for (int i = 0; i < size; i += 16)
            largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_maskz_loadu_ps(first(given - i), x + i)));
        const float most = _mm512_reduce_max_ps(largest);
        const __m512 factor = _mm512_set1_ps(most > 0 ? 127 / most : 0);
        const __m512i least_byte = _mm512_set1_epi32(-128), most_byte = _mm512_set1_epi32(127);
        __m512i sum = _mm512_setzero_si512();
        for (int i = 0; i < size; i += 16) {
            const __m512 value = _mm512_maskz_loadu_ps(first(given - i), x + i);
            const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(value, factor));  // of NaN the least number
            const __m512i rounded = _mm512_max_epi32(_mm512_min_epi32(whole, most_byte), least_byte);
            sum = _mm512_add_epi32(sum, rounded);
            int32_t fours[4];
            _mm_storeu_si128(reinterpret_cast<__m128i*>(fours), _mm512_cvtsepi32_epi8(rounded));
            for (int j = 0; j < 4; ++j) std::memcpy(to + static_cast<size_t>(i + 4 * j) * step, &fours[j], 4);
        }
        scales.data()[static_cast<size_t>(row) * groups + group] = most / 127;
        starts.data()[static_cast<size_t>(row) * groups + group] = -128 * _mm512_reduce_add_epi32(sum);
    }
};

// Adds the products of four unsigned and four signed numbers to each of 16 sums. With the intrinsic GCC 12 copies
// every sum twice and runs out of registers: half the speed.
inline void dot(__m512i& sums, __m512i unsigneds, __m512i signeds) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(unsigneds), "v"(signeds));
}

// The R rows of a part times a block of weights: out (R, 32).
template <int R>
__attribute__((noinline)) void multiply(const uint8_t* w, const float* factors, const Rows& x, int row, float* out) {
    const int8_t* a = x.values.data() + static_cast<size_t>(row) * x.stride;
    const float* scales = x.scales.data() + static_cast<size_t>(row) * x.groups;
    const int32_t* starts = x.starts.data() + static_cast<size_t>(row) * x.groups;
    const int groups = x.groups, stride = x.stride;
    for (int group = 0; group < groups; ++group, factors += WIDTH) {
        __m512i sums[R][2];
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm512_set1_epi32(starts[r * groups + group]);
        const int steps = (stride - group * GROUP < GROUP ? stride - group * GROUP : GROUP) / 4;
        for (int k = 0; k < steps; ++k, w += 4 * WIDTH, a += 4 * R) {
            const __m512i left = _mm512_load_si512(w), right = _mm512_load_si512(w + 64);
            _mm_prefetch(reinterpret_cast<const char*>(w + AHEAD), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(w + AHEAD + 64), _MM_HINT_T0);
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r) {
                int32_t four;
                std::memcpy(&four, a + 4 * r, 4);
                const __m512i value = _mm512_set1_epi32(four);
                dot(sums[r][0], left, value);
                dot(sums[r][1], right, value);
            }
        }
        const __m512 left = _mm512_load_ps(factors), right = _mm512_load_ps(factors + 16);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            const __m512 scale = _mm512_set1_ps(scales[r * groups + group]);
            float* to = out + r * WIDTH;
            const __m512 zero = _mm512_setzero_ps();
            const __m512 a0 = group ? _mm512_load_ps(to) : zero, a1 = group ? _mm512_load_ps(to + 16) : zero;
            _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][0]), _mm512_mul_ps(left, scale), a0));
            _mm512_store_ps(to + 16, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][1]), _mm512_mul_ps(right, scale), a1));
        }
    }
}

inline void multiply(int rows, const uint8_t* w, const float* factors, const Rows& x, int row, float* out) {
    switch (rows) {
        case 1:
            return multiply<1>(w, factors, x, row, out);
        case 2:
            return multiply<2>(w, factors, x, row, out);
        case 3:
            return multiply<3>(w, factors, x, row, out);
        case 4:
            return multiply<4>(w, factors, x, row, out);
        case 5:
            return multiply<5>(w, factors, x, row, out);
        case 6:
            return multiply<6>(w, factors, x, row, out);
        case 7:
            return multiply<7>(w, factors, x, row, out);
        case 8:
            return multiply<8>(w, factors, x, row, out);
        case 9:
            return multiply<9>(w, factors, x, row, out);
        case 10:
            return multiply<10>(w, factors, x, row, out);
        case 11:
            return multiply<11>(w, factors, x, row, out);
        default:
            return multiply<12>(w, factors, x, row, out);
    }
}

// Output of a layer. Bias and activation are applied to its products (or 16 gates are multiplied with 16 values), and
// the results are stored in `out` or added to it. The first column of `out` is column `from` of the layer.
struct Target {
    float* out;
    int stride;
    int32_t activation = IDENTITY;
    bool gated = false, add = false;
    int from = 0;
};

inline void finish(const float* products, int rows, int row, int block, const float* bias, int outputs,
                   const Target& target) {
    const int from = block * WIDTH, results = target.gated ? outputs / 2 : outputs;
    for (int r = 0; r < rows; ++r, products += WIDTH) {
        float* to = target.out + static_cast<size_t>(row + r) * target.stride - target.from;
        __m512 values[2] = {_mm512_load_ps(products), _mm512_load_ps(products + 16)};
        if (bias)
            for (int half = 0; half < 2; ++half) {
                const int at = from + half * 16;
                if (at < outputs)
                    values[half] = _mm512_add_ps(values[half], _mm512_maskz_loadu_ps(first(outputs - at), bias + at));
            }
        if (target.gated) {
            const int at = block * 16;
            const __m512 product = _mm512_mul_ps(activate(values[0], target.activation), values[1]);
            _mm512_mask_storeu_ps(to + at, first(results - at), product);
            continue;
        }
        for (int half = 0; half < 2; ++half) {
            const int at = from + half * 16;
            if (at >= results) break;
            const __mmask16 mask = first(results - at);
            __m512 value = activate(values[half], target.activation);
            if (target.add) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, to + at));
            _mm512_mask_storeu_ps(to + at, mask, value);
        }
    }
}

// Rows through some blocks of a layer.
inline void some(const char* file, const Linear& layer, const Rows& x, int from, int to, const Target& target) {
    const uint8_t* weight = reinterpret_cast<const uint8_t*>(file + layer.weight);
    const float* scales = reinterpret_cast<const float*>(file + layer.scales);
    const float* bias = layer.bias < 0 ? nullptr : reinterpret_cast<const float*>(file + layer.bias);
    alignas(64) float products[ROWS * WIDTH];
    for (int block = from; block < to; ++block) {
        const uint8_t* w = weight + static_cast<size_t>(block) * x.stride * WIDTH;
        const float* factors = scales + static_cast<size_t>(block) * x.groups * WIDTH;
        for (int part = 0; part < x.parts; ++part) {
            const int row = x.begin(part), count = x.begin(part + 1) - row;
            multiply(count, w, factors, x, row, products);
            finish(products, count, row, block, bias, layer.outputs, target);
        }
    }
}

// Rows through a layer.
inline void linear(Team& team, const char* file, const Linear& layer, const Rows& x, const Target& target) {
    const int blocks = ceil_div(layer.outputs, WIDTH), chunks = blocks < 8 * team.size() ? blocks : 8 * team.size();
    team.each(chunks, [&](int chunk, int) {
        some(file, layer, x, blocks * chunk / chunks, blocks * (chunk + 1) / chunks, target);
    });
}

// Rows through a layer whose results are the activations of another one: each group of them is rounded where it was
// computed. `desks` is memory of each thread.
inline void linear(Team& team, const char* file, const Linear& layer, const Rows& x, int32_t activation, bool gated,
                   int results, Rows& out, std::vector<Buffer<float>>& desks) {
    out.resize(x.rows, results);
    for (auto& desk : desks) desk.get(static_cast<size_t>(x.rows) * GROUP);
    const int blocks = ceil_div(layer.outputs, WIDTH), each = gated ? GROUP / 16 : GROUP / WIDTH;
    team.each(out.groups, [&](int group, int thread) {
        float* desk = desks[thread].data();
        const int to = (group + 1) * each < blocks ? (group + 1) * each : blocks;
        some(file, layer, x, group * each, to, {desk, GROUP, activation, gated, false, group * GROUP});
        for (int row = 0; row < x.rows; ++row) out.set(row, group, desk + static_cast<size_t>(row) * GROUP);
    });
}

}  // namespace mar

// Functions of 16 floats at a time.

#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace mar {

inline __mmask16 first(int count) { return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1); }

// e^x: a power of two times a polynomial of degree 7, which is all that float32 holds of the series.
inline __m512 exp(__m512 x) {
    x = _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(88.f)), _mm512_set1_ps(-104.f));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 y = _mm512_set1_ps(1.f / 5040);
    for (const float c : {1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f, 1.f, 1.f})
        y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(c));
    return _mm512_scalef_ps(y, n);
}

inline __m512 tanh(__m512 x) {
    const __m512 e = exp(_mm512_add_ps(x, x)), one = _mm512_set1_ps(1);
    return _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2), _mm512_add_ps(e, one)));
}

// The error function, Abramowitz and Stegun 7.1.26: within 1.5e-7.
inline __m512 erf(__m512 x) {
    const __m512 one = _mm512_set1_ps(1), size = _mm512_abs_ps(x);
    const __m512 t = _mm512_div_ps(one, _mm512_fmadd_ps(_mm512_set1_ps(0.3275911f), size, one));
    __m512 y = _mm512_set1_ps(1.061405429f);
    for (const float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
        y = _mm512_fmadd_ps(y, t, _mm512_set1_ps(c));
    const __m512 tail =
        _mm512_mul_ps(_mm512_mul_ps(y, t), exp(_mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), x), x)));
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(  // the sign of x and the rest of 1 - tail
        _mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(x), _mm512_castps_si512(_mm512_sub_ps(one, tail)), 0xca));
}

enum Activation : int32_t { IDENTITY, GELU, GELU_TANH, SILU, RELU, TANH };

inline __m512 activate(__m512 x, int32_t activation) {
    const __m512 one = _mm512_set1_ps(1), half = _mm512_mul_ps(x, _mm512_set1_ps(0.5f));
    switch (activation) {
        case GELU:
            return _mm512_fmadd_ps(half, erf(_mm512_mul_ps(x, _mm512_set1_ps(0.70710678f))), half);
        case GELU_TANH: {
            const __m512 cubic = _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(0.044715f), one);
            const __m512 inner = _mm512_mul_ps(_mm512_mul_ps(x, cubic), _mm512_set1_ps(0.79788456f));
            return _mm512_fmadd_ps(half, tanh(inner), half);
        }
        case SILU:
            return _mm512_div_ps(x, _mm512_add_ps(one, exp(_mm512_sub_ps(_mm512_setzero_ps(), x))));
        case RELU:
            return _mm512_max_ps(x, _mm512_setzero_ps());
        case TANH:
            return tanh(x);
        default:
            return x;
    }
}

// 16 x 16 floats: the first `rows` rows of `in` become columns of `out`, the other columns 0.
inline void transpose(const float* in, size_t in_stride, int rows, __mmask16 columns, float* out, size_t out_stride) {
    __m512 a[16], b[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r)
        a[r] = r < rows ? _mm512_maskz_loadu_ps(columns, in + r * in_stride) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < 16; r += 2) {  // pairs of rows, number by number
        b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 16; r += 4) {  // fours of rows: in a[r + k] columns k, 4 + k, 8 + k and 12 + k
#pragma GCC unroll 2
        for (int k = 0; k < 2; ++k) {
            const __m512d low = _mm512_castps_pd(b[r + k]), high = _mm512_castps_pd(b[r + 2 + k]);
            a[r + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[r + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
        const __m512 p = _mm512_shuffle_f32x4(a[k], a[4 + k], 0x88), q = _mm512_shuffle_f32x4(a[k], a[4 + k], 0xdd);
        const __m512 u = _mm512_shuffle_f32x4(a[8 + k], a[12 + k], 0x88),
                     v = _mm512_shuffle_f32x4(a[8 + k], a[12 + k], 0xdd);
        b[k] = _mm512_shuffle_f32x4(p, u, 0x88);       // column k
        b[8 + k] = _mm512_shuffle_f32x4(p, u, 0xdd);   // 8 + k
        b[4 + k] = _mm512_shuffle_f32x4(q, v, 0x88);   // 4 + k
        b[12 + k] = _mm512_shuffle_f32x4(q, v, 0xdd);  // 12 + k
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r)
        if (columns >> r & 1) _mm512_storeu_ps(out + r * out_stride, b[r]);
}

// Layer or root-mean-square normalisation of a row; weight and bias may be null, and out may be x.
inline void normalise(const float* x, int size, const float* weight, const float* bias, float eps, bool rms,
                      float* out) {
    __m512 sum = _mm512_setzero_ps(), squares = sum;
    if (!rms)
        for (int i = 0; i < size; i += 16) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(first(size - i), x + i));
    const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / size);
    for (int i = 0; i < size; i += 16) {
        const __mmask16 mask = first(size - i);
        const __m512 d = _mm512_maskz_sub_ps(mask, _mm512_maskz_loadu_ps(mask, x + i), mean);
        squares = _mm512_fmadd_ps(d, d, squares);
    }
    const __m512 factor = _mm512_set1_ps(1 / __builtin_sqrtf(_mm512_reduce_add_ps(squares) / size + eps));
    for (int i = 0; i < size; i += 16) {
        const __mmask16 mask = first(size - i);
        __m512 y = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), mean), factor);
        if (weight) y = _mm512_mul_ps(y, _mm512_maskz_loadu_ps(mask, weight + i));
        if (bias) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, bias + i));
        _mm512_mask_storeu_ps(out + i, mask, y);
    }
}

}  // namespace mar

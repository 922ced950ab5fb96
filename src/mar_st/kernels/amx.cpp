// Linear layers in float32 accuracy on the bf16 matrix unit (AMX) of x86 processors.
//
// A float32 is split into the bf16 nearest to it and the bf16 nearest to the rest: x = xh + xl, together 16 bits
// of mantissa. x w = xh wh + xl wh + xh wl, products exact and summed in float32; what is left out, xl wl, and the
// rounding of the rests are of the order of 2^-17. The matrix unit is so much faster than float32 arithmetic that
// three products cost a third of one.
//
// Weights are split and laid out for the unit once, activations block by block. Single-threaded; no state.

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr int TILE = 512;     // bf16 values of a tile: 16 rows of 32
constexpr int ROWS = 256;     // rows of x and
constexpr int DEPTH = 1024;   // columns of x that are split at a time: 1 MiB, half of a level 2 cache

struct alignas(64) Config {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
};

// 32 floats to their high and low halves, in order.
inline void split(const float* from, __m512i& high, __m512i& low) {
    const __m512 a = _mm512_loadu_ps(from), b = _mm512_loadu_ps(from + 16);
    high = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    const __m512i wide_a = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(high));
    const __m512i wide_b = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(high, 1));
    const __m512 rest_a = _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(wide_a, 16)));
    const __m512 rest_b = _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_slli_epi32(wide_b, 16)));
    low = (__m512i)_mm512_cvtne2ps_pbh(rest_b, rest_a);
}

// A block of x as tiles: [rows / 16][blocks][high, low][16][32]; rows beyond the last are zeros.
void split_rows(const float* x, int stride, int rows, int blocks, uint16_t* out) {
    for (int r = 0; r < (rows + 31) / 32 * 32; ++r) {
        uint16_t* target = out + static_cast<size_t>(r / 16) * blocks * 2 * TILE + (r % 16) * 32;
        const float* row = x + static_cast<size_t>(r) * stride;
        for (int block = 0; block < blocks; ++block, target += 2 * TILE) {
            __m512i high = _mm512_setzero_si512(), low = high;
            if (r < rows) split(row + block * 32, high, low);
            _mm512_store_si512(target, high);
            _mm512_store_si512(target + TILE, low);
        }
    }
}

// 32 rows times 32 columns over `blocks` blocks of 32: the sum in `out`, (32, 32).
inline void multiply(const uint16_t* upper, const uint16_t* lower, const uint16_t* w, int blocks, float* out) {
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    for (int block = 0; block < blocks; ++block, upper += 2 * TILE, lower += 2 * TILE, w += 4 * TILE) {
        _tile_loadd(4, upper + TILE, 64);
        _tile_loadd(6, w, 64);
        _tile_dpbf16ps(0, 4, 6);  // low x high
        _tile_loadd(7, w + TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, lower + TILE, 64);
        _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
        _tile_loadd(4, upper, 64); _tile_loadd(5, lower, 64);  // high x high
        _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
        _tile_loadd(6, w + 2 * TILE, 64); _tile_loadd(7, w + 3 * TILE, 64);  // high x low
        _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, 128); _tile_stored(1, out + 16, 128);
    _tile_stored(2, out + 512, 128); _tile_stored(3, out + 528, 128);
}

}  // namespace

// Ask the kernel of Linux for the use of the unit; 0 if it is granted.
extern "C" int mar_amx_begin() {
    constexpr int REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0 ? 0 : 1;
}

// uint16 values that `mar_amx_linear` needs as room for x.
extern "C" int mar_amx_room() { return ROWS * DEPTH * 2; }

// Weights (n, k), both multiples of 32, to [n / 32][k / 32][high, low][2 halves of columns][16 pairs][16][2].
extern "C" void mar_amx_pack(const float* w, int n, int k, uint16_t* out) {
    const int blocks = k / 32;
    for (int column = 0; column < n; ++column)
        for (int block = 0; block < blocks; ++block) {
            uint16_t* tile = out + (static_cast<size_t>(column / 32) * blocks + block) * 4 * TILE;
            tile += (column % 32 / 16) * TILE + column % 16 * 2;
            __m512i high, low;
            split(w + static_cast<size_t>(column) * k + block * 32, high, low);
            alignas(64) uint32_t pairs[2][16];
            _mm512_store_si512(pairs[0], high);
            _mm512_store_si512(pairs[1], low);
            for (int pair = 0; pair < 16; ++pair) {
                std::memcpy(tile + pair * 32, &pairs[0][pair], 4);
                std::memcpy(tile + 2 * TILE + pair * 32, &pairs[1][pair], 4);
            }
        }
}

// y (m, n) = x (m, k) w^T + bias; bias may be null. `room` is aligned to 64 bytes.
extern "C" void mar_amx_linear(
    const float* x, int m, int k, int n, const uint16_t* w, const float* bias, float* y, uint16_t* room
) {
    Config config;
    for (int tile = 0; tile < 8; ++tile) {
        config.bytes[tile] = 64;
        config.rows[tile] = 16;
    }
    _tile_loadconfig(&config);
    alignas(64) float sum[32 * 32];
    for (int row = 0; row < m; row += ROWS)
        for (int depth = 0; depth < k; depth += DEPTH) {
            const int rows = std::min(ROWS, m - row), blocks = std::min(DEPTH, k - depth) / 32;
            split_rows(x + static_cast<size_t>(row) * k + depth, k, rows, blocks, room);
            for (int column = 0; column < n; column += 32) {
                const uint16_t* part = w + (static_cast<size_t>(column / 32) * (k / 32) + depth / 32) * 4 * TILE;
                __m512 left = _mm512_setzero_ps(), right = left;
                if (bias && depth == 0) {
                    left = _mm512_loadu_ps(bias + column);
                    right = _mm512_loadu_ps(bias + column + 16);
                }
                for (int start = 0; start < rows; start += 32) {
                    const uint16_t* upper = room + static_cast<size_t>(start / 16) * blocks * 2 * TILE;
                    multiply(upper, upper + static_cast<size_t>(blocks) * 2 * TILE, part, blocks, sum);
                    for (int r = 0; r < std::min(32, rows - start); ++r) {
                        float* target = y + static_cast<size_t>(row + start + r) * n + column;
                        if (depth) {
                            left = _mm512_loadu_ps(target);
                            right = _mm512_loadu_ps(target + 16);
                        }
                        _mm512_storeu_ps(target, _mm512_add_ps(_mm512_load_ps(sum + r * 32), left));
                        _mm512_storeu_ps(target + 16, _mm512_add_ps(_mm512_load_ps(sum + r * 32 + 16), right));
                    }
                }
            }
        }
    _tile_release();
}

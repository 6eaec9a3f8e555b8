// Inverses of many symmetric positive matrices at once, one block of threads for each.
//
// Gauss-Jordan without a search for pivots, which such matrices do not need: the pivots are those of their Cholesky
// factor, squared. Each number stays in a register of its thread from the first sweep to the last; a sweep hands its
// column around through shared memory. A pivot that is not positive makes everything NaN.

#include <cuda_runtime.h>
#include <math_constants.h>

#define LANES 32 // threads beside each other: columns j, j + 32, ...
#define WARPS 16 // and rows i, i + 16, ...
#define WIDEST 7 // columns of a thread, at most: 224 in all

struct Matrices {
    const float *from;
    const float *shift; // added to the diagonal, one number for each matrix
    float *to;
    int n;
    long from_next, from_row, to_next, to_row; // how far apart matrices and rows lie
};

template <int COLUMNS> __global__ void __launch_bounds__(LANES *WARPS, 1) sweep(Matrices all) {
    constexpr int ROWS = COLUMNS * LANES / WARPS;
    __shared__ float columns[2][COLUMNS * LANES];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, n = all.n;
    const float *from = all.from + blockIdx.x * all.from_next, shift = all.shift[blockIdx.x];
    float *to = all.to + blockIdx.x * all.to_next;
    float own[ROWS][COLUMNS];
#pragma unroll
    for (int p = 0; p < ROWS; p++)
#pragma unroll
        for (int q = 0; q < COLUMNS; q++) {
            int i = warp + WARPS * p, j = lane + LANES * q;
            own[p][q] = (i < n && j < n ? from[i * all.from_row + j] : 0.0f) + (i == j ? (i < n ? shift : 1.0f) : 0.0f);
        }
#pragma unroll
    for (int block = 0; block < ROWS; block++) {
        const int q = block * WARPS / LANES; // where column k lies with its threads
#pragma unroll 1
        for (int row = 0; row < WARPS; row++) {
            const int k = block * WARPS + row;
            if (k >= n) break;
            float *column = columns[k & 1];
            const bool mine = lane == k % LANES;
            if (mine) {
#pragma unroll
                for (int p = 0; p < ROWS; p++) column[warp + WARPS * p] = own[p][q];
            }
            __syncthreads(); // one is enough: the other column is written next, which all have read
            const float pivot = column[k], inverse = pivot > 0.0f ? 1.0f / pivot : CUDART_NAN_F;
            float scaled[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) scaled[c] = column[lane + LANES * c] * inverse;
#pragma unroll
            for (int p = 0; p < ROWS; p++) {
                const float here = column[warp + WARPS * p];
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) own[p][c] = fmaf(-here, scaled[c], own[p][c]);
                if (mine) own[p][q] = here * inverse;
            }
            if (warp == row) {
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) own[block][c] = scaled[c];
                if (mine) own[block][q] = -inverse;
            }
        }
    }
#pragma unroll
    for (int p = 0; p < ROWS; p++)
#pragma unroll
        for (int q = 0; q < COLUMNS; q++) {
            int i = warp + WARPS * p, j = lane + LANES * q;
            if (i < n && j < n) to[i * all.to_row + j] = -own[p][q];
        }
}

template <int COLUMNS> static void launch(cudaStream_t stream, const Matrices &all, int count) {
    sweep<COLUMNS><<<count, LANES * WARPS, 0, stream>>>(all);
}

// (matrix + shift)^-1 of `count` matrices of n rows, n at most 224. `strides`: of the matrices and rows that are read, then
// of those that are written.
extern "C" int sweeps_invert(
    cudaStream_t stream, const float *from, const float *shift, float *to, int count, int n, const long *strides
) {
    static void (*const sizes[WIDEST])(cudaStream_t, const Matrices &, int) = {
        launch<1>, launch<2>, launch<3>, launch<4>, launch<5>, launch<6>, launch<7>,
    };
    if (n < 1 || n > WIDEST * LANES) return (int)cudaErrorInvalidValue;
    Matrices all = {from, shift, to, n, strides[0], strides[1], strides[2], strides[3]};
    sizes[(n - 1) / LANES](stream, all, count);
    return (int)cudaGetLastError();
}

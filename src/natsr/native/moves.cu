// Passes over all weights of a fleet, (learners, numbers) each, with coefficients for every learner.

#include <cuda_runtime.h>

#define THREADS 256

// y = keep * y + add * x; where add is zero, x is not looked at.
__global__ static void blend(float *y, const float *x, const float *keep, const float *add, long numbers) {
    long i = (long)blockIdx.x * THREADS + threadIdx.x, at = (long)blockIdx.y * numbers + i;
    if (i >= numbers) return;
    float kept = keep[blockIdx.y], added = add[blockIdx.y];
    if (added == 0.0f) {
        if (kept != 1.0f) y[at] *= kept;
        return;
    }
    y[at] = fmaf(added, x[at], kept * y[at]);
}

// AdamW. A learner's row of `how`: whether it moves at all; the weights of the new gradient in the two averages; what the
// root of the second is multiplied by; what is added to it; how far to go; and what is kept of the weights.
__global__ static void adamw(
    float *weights, float *mean, float *square, const float *gradient, const float *how, long numbers
) {
    long i = (long)blockIdx.x * THREADS + threadIdx.x, at = (long)blockIdx.y * numbers + i;
    const float *own = how + 7 * blockIdx.y;
    if (i >= numbers || own[0] == 0.0f) return;
    float g = gradient[at];
    float m = mean[at] + own[1] * (g - mean[at]);
    float v = square[at] + own[2] * (g * g - square[at]);
    mean[at] = m;
    square[at] = v;
    weights[at] = own[6] * weights[at] - own[5] * m / (sqrtf(v) * own[3] + own[4]);
}

static dim3 grid(long learners, long numbers) {
    return dim3((unsigned)((numbers + THREADS - 1) / THREADS), (unsigned)learners);
}

extern "C" int moves_blend(
    cudaStream_t stream, float *y, const float *x, const float *keep, const float *add, long learners, long numbers
) {
    blend<<<grid(learners, numbers), THREADS, 0, stream>>>(y, x, keep, add, numbers);
    return (int)cudaGetLastError();
}

extern "C" int moves_adamw(
    cudaStream_t stream, float *const *state, const float *gradient, const float *how, long learners, long numbers
) {
    adamw<<<grid(learners, numbers), THREADS, 0, stream>>>(state[0], state[1], state[2], gradient, how, numbers);
    return (int)cudaGetLastError();
}

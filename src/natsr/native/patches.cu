// What lies between the matrix products of a network on the cone (natsr.fleet.net), one kernel for each direction.
//
// A convolution reads, for output row d and tap t, the input row start + stride * d + t; rows outside of 0 … rows-1 are
// zero. Tensors are float32; channels are innermost.

#include <cuda_runtime.h>

#define THREADS 256

struct Conv {
    int rows, outs, taps, stride, start, channels;
};

__device__ static float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }

__device__ static float slope(float x) {
    float below = 0.5f * (1.0f + erff(x * 0.70710678118654752f));
    return below + x * 0.39894228040143268f * expf(-0.5f * x * x);
}

// patches (batch, outs, taps * channels + 1) from x (batch, rows, channels); the last column is left as it is.
__global__ static void gather(const float *x, float *patches, long count, Conv conv) {
    long i = (long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int width = conv.taps * conv.channels;
    int place = (int)(i % width);
    long line = i / width;
    int row = conv.start + conv.stride * (int)(line % conv.outs) + place / conv.channels;
    float value = 0.0f;
    if (row >= 0 && row < conv.rows)
        value = gelu(x[((line / conv.outs) * conv.rows + row) * conv.channels + place % conv.channels]);
    patches[line * (width + 1) + place] = value;
}

// out (n, probes, batch, rows, channels) from grads (n, probes, batch, outs, taps * channels), times the slope of GELU at
// before (n, batch, rows, channels), whose learners lie `apart` numbers from each other.
__global__ static void scatter(
    const float *grads, const float *before, float *out, long count, int probes, int batch, long apart, Conv conv
) {
    long i = (long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int channel = (int)(i % conv.channels);
    int row = (int)(i / conv.channels % conv.rows);
    long line = i / conv.channels / conv.rows;  // learner, probe and example
    int width = conv.taps * conv.channels;
    const float *from = grads + line * conv.outs * width + channel;
    float sum = 0.0f;
    for (int tap = 0; tap < conv.taps; tap++) {
        int reach = row - conv.start - tap;
        if (reach >= 0 && reach % conv.stride == 0 && reach / conv.stride < conv.outs)
            sum += from[(long)(reach / conv.stride) * width + tap * conv.channels];
    }
    long example = line % batch, learner = line / batch / probes;
    out[i] = sum * slope(before[learner * apart + (example * conv.rows + row) * conv.channels + channel]);
}

static unsigned blocks(long count) { return (unsigned)((count + THREADS - 1) / THREADS); }

extern "C" int patches_gather(cudaStream_t stream, const float *x, float *patches, long batch, const int *shape) {
    Conv conv = {shape[0], shape[1], shape[2], shape[3], shape[4], shape[5]};
    long count = batch * conv.outs * conv.taps * conv.channels;
    gather<<<blocks(count), THREADS, 0, stream>>>(x, patches, count, conv);
    return (int)cudaGetLastError();
}

extern "C" int patches_scatter(
    cudaStream_t stream, const float *grads, const float *before, float *out, const long *sizes, const int *shape
) {
    Conv conv = {shape[0], shape[1], shape[2], shape[3], shape[4], shape[5]};
    long count = sizes[0] * sizes[1] * sizes[2] * conv.rows * conv.channels;
    scatter<<<blocks(count), THREADS, 0, stream>>>(
        grads, before, out, count, (int)sizes[1], (int)sizes[2], sizes[3], conv
    );
    return (int)cudaGetLastError();
}

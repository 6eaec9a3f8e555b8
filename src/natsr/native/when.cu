// Conditional nodes of a CUDA graph that is being captured: a body that the device runs if, or while, a flag is set.
//
// Each function returns the runtime's error code, 0 for none. `flag` lies on the device.

#include <cuda_runtime.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t failed = (call);                                                                                   \
        if (failed != cudaSuccess) return (int)failed;                                                                 \
    } while (0)

__global__ static void decide(cudaGraphConditionalHandle handle, const bool *flag) {
    cudaGraphSetConditional(handle, *flag ? 1u : 0u);
}

// The graph that the stream is being captured into, and what the next node depends on.
static cudaError_t captured(cudaStream_t stream, cudaGraph_t *graph, const cudaGraphNode_t **before, size_t *count) {
    cudaStreamCaptureStatus status;
    const cudaGraphEdgeData *edges = nullptr;
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, &status, nullptr, graph, before, &edges, count);
#else
    return cudaStreamGetCaptureInfo_v3(stream, &status, nullptr, graph, before, &edges, count);
#endif
}

// Adds the node after all that `stream` has recorded; what `stream` records next comes after it.
extern "C" int when_open(
    cudaStream_t stream, const bool *flag, int loop, cudaGraph_t *body, unsigned long long *handle
) {
    cudaGraph_t graph;
    const cudaGraphNode_t *before;
    size_t count;
    cudaGraphConditionalHandle made;
    TRY(captured(stream, &graph, &before, &count));
    TRY(cudaGraphConditionalHandleCreate(&made, graph, 0, 0));
    decide<<<1, 1, 0, stream>>>(made, flag);
    TRY(cudaGetLastError());
    TRY(captured(stream, &graph, &before, &count));
    cudaGraphNodeParams asked = {};
    asked.type = cudaGraphNodeTypeConditional;
    asked.conditional.handle = made;
    asked.conditional.type = loop ? cudaGraphCondTypeWhile : cudaGraphCondTypeIf;
    asked.conditional.size = 1;
    cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
    TRY(cudaGraphAddNode(&node, graph, before, nullptr, count, &asked));
    TRY(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
#else
    TRY(cudaGraphAddNode(&node, graph, before, count, &asked));
    TRY(cudaStreamUpdateCaptureDependencies(stream, &node, 1, cudaStreamSetCaptureDependencies));
#endif
    *body = asked.conditional.phGraph_out[0];
    *handle = made;
    return 0;
}

// From here on `stream`, another one, records into the body.
extern "C" int when_begin(cudaStream_t stream, cudaGraph_t body) {
    return (int)cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal);
}

// Ends the body; a loop looks at its flag again.
extern "C" int when_end(cudaStream_t stream, unsigned long long handle, const bool *flag, int loop) {
    if (loop) {
        decide<<<1, 1, 0, stream>>>(handle, flag);
        TRY(cudaGetLastError());
    }
    cudaGraph_t graph;
    return (int)cudaStreamEndCapture(stream, &graph);
}

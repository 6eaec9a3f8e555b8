/* The network on its receptive cone (natsr.nets.tcn says what that is) with everything that a step needs around it.
 *
 * All of it lives in one context for each network: nothing here is global, so any number of learners may step at once.
 */
#ifndef NATSR_CONE_H
#define NATSR_CONE_H

#include "kernels.h"

typedef struct {
    int32_t src, dst, stride, taps, start; /* as in natsr.nets.tcn.Conv */
    int32_t before, rows;                  /* rows of zeros before its inputs; rows with those before and after */
    int32_t ahead, grad_rows;              /* the same for the gradient of its outputs */
    int32_t in, out;                       /* channels */
    int32_t layer;
    float *h, *d;        /* GELU (B, rows, in) and its slope (B, src, in) */
    float *g;            /* gradient of the outputs (N, grad_rows, out) */
    float *back;         /* the matrix transposed, taps in the order in which gradients meet them */
    int32_t *from, *to;  /* patches in h; rows in g */
    int32_t *pull[2];    /* rows of g that a source row is pulled from: all; or for stride 2, odd and even rows */
    int32_t *sink[2];    /* where it goes */
    int32_t pulls[2];    /* source rows of each kind in one example */
} conv;

typedef struct {
    int64_t start;        /* in the flat weights */
    int32_t in, out;      /* I with the bias, O */
    int32_t places;       /* S, positions at which it is applied to one example */
    int32_t lda, ldg;     /* numbers between rows of its factors */
    const float *x, *g;   /* inputs and gradients of the outputs */
    const int32_t *xo, *go;
    double input_squares; /* of its inputs, from above */
    float *thin_x, *thin_g; /* the preconditioned gradient as two thin factors, (R, lda) and (R, ldg) */
    int32_t *thin_xo, *thin_go;
    int32_t thin; /* 0: the gradient is made and preconditioned whole; 1: by thin factors; 2: and kept as those */
} layer;

typedef struct cone {
    int32_t window, inputs, read, width, top, outputs, blocks, layers;
    conv *convs; /* two for each block */
    layer *layer;
    int64_t weights;
    int32_t room, grad_room, thin_room; /* examples, probes times examples, rows that there is room for */
    int32_t B, N;                       /* in the last forward and backward pass */
    int has_keep;
    float *rows, *values, *raw, *projected, *peak, *keep, *pull, *input_grad, *scratch, *delta, *work;
    float *head_back, *projection_back;
    int32_t *dense_in, *dense_width, *dense_top, *dense_out, *dense_grad; /* offsets of rows that lie side by side */
    int32_t *dense_result, *around_to; /* outputs; where the projection's input gradient goes */
    float *packed;
    int32_t *packed_to;
    int32_t *owner; /* the example of each row of the last backward pass */
} cone;

#define PIECE 96 /* rows of inputs that are weighted at once */

#define AT_ONCE 8192 /* numbers of a gradient that are made and used at once, so that they stay in the nearest cache */

INLINE int32_t padded(int32_t n) { return (n + 15) / 16 * 16; }
INLINE long rows_at_once(const layer *l) { return l->out > AT_ONCE / MR ? MR : AT_ONCE / l->out / MR * MR; }

void *zeroed(size_t count, size_t size);
int32_t *evenly(long count, long step);
void column_sums(const float *g, const int32_t *go, long rows, long n, float *out);

/* Rows of a layer's gradient, from row i of its matrix to row j, bias row included. */
void gradient_rows(const cone *c, const layer *l, long i, long j, float *out);

EXPORT cone *cone_new(const int32_t *sizes, const int32_t *convs);
EXPORT void cone_free(cone *c);
EXPORT int64_t cone_weights(const cone *c);
EXPORT int cone_forward(cone *c, const float *w, const float *window, int32_t B, const float *keep, float *output);
EXPORT int cone_backward(cone *c, const float *w, const float *pull, const int32_t *owner, int32_t N);
EXPORT void cone_gradient(const cone *c, float *flat);
EXPORT void cone_tap(const cone *c, int32_t index, float *inputs, float *grads);

#endif

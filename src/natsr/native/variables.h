/* The network that convolves over the variables (natsr.nets.variables says what it is).
 *
 * Columns that a convolution of dilation d sees together are those of one remainder modulo d. They lie beside each other
 * in its inputs, a row of zeros between one remainder and the next, so that every convolution has dilation one.
 */
#ifndef NATSR_VARIABLES_H
#define NATSR_VARIABLES_H

#include "layers.h"

typedef struct {
    int32_t taps, in, out, rows; /* rows of one example, with those of zeros */
    int32_t layer;
    int32_t *place;       /* the row of each column */
    float *h, *d, *g;     /* GELU (B, rows, in), its slope (B, C, in), gradient of the outputs (B, rows, out) */
    int32_t *from;        /* patches in h */
    int32_t *to, *pull;   /* rows of g, and patches of them */
} across;

typedef struct {
    int32_t window, inputs, channels, width, top, horizon, blocks, layers;
    across *convs; /* two for each block */
    layer *layer;
    int64_t weights;
    int32_t room, B;
    int has_keep;
    float *rows, *values, *raw, *projected, *peak, *keep, *said, *pulls, *input_grad, *around, *scratch;
    float *back; /* a matrix transposed, its taps in the order in which gradients meet them */
    int32_t *at_window, *at_width, *at_top, *at_horizon; /* offsets of rows that lie side by side */
} variables;

EXPORT variables *variables_new(const int32_t *sizes);
EXPORT void variables_free(variables *n);
EXPORT int64_t variables_weights(const variables *n);
EXPORT void variables_passed(const variables *n, passed *p);
EXPORT int variables_forward(variables *n, const float *w, const float *window, int32_t B, const float *keep,
                             float *output);
EXPORT void variables_backward(variables *n, const float *w, const float *pull);
EXPORT void variables_gradient(const variables *n, float *flat);

#endif

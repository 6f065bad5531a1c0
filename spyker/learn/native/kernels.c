/* Training of small convolutional networks on one core.

   The images of a batch are the innermost dimension: an activation is [channel][y][x][LANES images], so every operation
   is one on whole vectors, whatever the sizes of the layers. A batch is computed in blocks of LANES images, each forward
   and backward at once while its activations are in the cache. Lanes without an image have zeros for a gradient.

   A layer is a convolution of step 1, then perhaps a pool of 2 x 2, then perhaps a ReLU; a fully connected layer is a
   convolution of 1 x 1 on one pixel. Two inner loops do nearly all the work: tile() (outputs, gradients of inputs) keeps
   the sums of up to ROWS channels at four pixels in registers, and correlate() (gradients of weights) those of up to
   ROWS channels and TAPS weights. No fast-math: what is not a number must stay visible. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#define ROWS 6 /* 6 x 4 sums, 4 inputs and a weight: 29 of 32 registers */
#elif defined(__AVX__)
#define LANES 8
#define ROWS 3
#else
#define LANES 4
#define ROWS 6
#endif
#define TAPS 4
#define STRIP 16384 /* bytes of gradient that correlate() keeps in the first-level cache */
#define MOST_LAYERS 64

typedef float vec __attribute__((vector_size(LANES * 4), may_alias));
typedef int32_t mask __attribute__((vector_size(LANES * 4), may_alias));
#define INLINE static inline __attribute__((always_inline))

/* What the caller says of a layer. The weights of a layer lie as [out][y][x][in], behind them the bias. */
typedef struct {
    int32_t in, out, kernel, padding, height, width, pool, relu, bias;
} Shape;

typedef struct {
    Shape s;
    int rows, columns;         /* of the convolution's result */
    int out_rows, out_columns; /* after the pool */
    int in_width, in_plane;    /* of the padded input */
    int border, d_width, d_plane;
    ptrdiff_t weights; /* where they begin in the vector */
    vec *input;        /* [in][height + 2 padding][width + 2 padding] */
    vec *output;       /* [out][...]: in the middle of the next layer's input */
    int out_width, out_plane;
    mask *chosen;    /* [out][out_rows][out_columns]: which of the four pixels was the largest */
    vec *d_result;   /* the gradient of the convolution's result, in a border of zeros */
    vec *d_output;   /* [out][out_rows][out_columns] */
    float *forwards; /* the weights in the order in which tile() wants them, for outputs */
    float *backwards; /* ... and for gradients of inputs */
} Layer;

typedef struct {
    Layer layers[MOST_LAYERS];
    int count;
    ptrdiff_t parameters;
    float *gradient;
    vec *sums;       /* [taps][ROWS] of correlate() */
    vec *transposed; /* [LANES][features] of a fully connected layer's input */
} Net;

INLINE vec either(mask condition, vec yes, vec no) {
    return (vec)((condition & (mask)yes) | (~condition & (mask)no));
}

INLINE float total(vec v) {
#if LANES == 16
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return v[0] + v[1];
#elif LANES == 8
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    return v[0] + v[1];
#else
    return (v[0] + v[1]) + (v[2] + v[3]);
#endif
}

/* Parts of n, none larger than `most` and all of nearly the same size: where part i begins. */
INLINE int parts(int n, int most) { return (n + most - 1) / most; }
INLINE int part(int n, int count, int i) { return (int)((int64_t)n * i / count); }

/* How an inner loop walks: over channels, and over the rows and columns of a kernel from first to last. */
typedef struct {
    int channels, kernel, first_y, last_y, first_x, last_x;
    ptrdiff_t channel_step, y_step, x_step;
} Walk;

typedef void Tile(const Walk *walk, const vec *const *at, const float *weights, vec *sums);

INLINE void tile(const int m_count, const int p_count, const Walk *walk, const vec *const *at, const float *weights,
                 vec *sums) {
    vec sum[ROWS][4];
#pragma GCC unroll 8
    for (int m = 0; m < m_count; m++)
#pragma GCC unroll 8
        for (int p = 0; p < p_count; p++) sum[m][p] = (vec){0};
    const Walk k = *walk;
    const vec *from[4];
#pragma GCC unroll 8
    for (int p = 0; p < p_count; p++) from[p] = at[p];
    for (int c = 0; c < k.channels; c++)
        for (int y = k.first_y; y <= k.last_y; y++) {
            const float *w = weights + ((c * k.kernel + y) * k.kernel + k.first_x) * m_count;
            ptrdiff_t offset = c * k.channel_step + y * k.y_step + k.first_x * k.x_step;
            for (int x = k.first_x; x <= k.last_x; x++, w += m_count, offset += k.x_step) {
                vec v[4];
#pragma GCC unroll 8
                for (int p = 0; p < p_count; p++) v[p] = from[p][offset];
#pragma GCC unroll 8
                for (int m = 0; m < m_count; m++) {
#pragma GCC unroll 8
                    for (int p = 0; p < p_count; p++) sum[m][p] += w[m] * v[p];
                }
            }
        }
#pragma GCC unroll 8
    for (int m = 0; m < m_count; m++)
#pragma GCC unroll 8
        for (int p = 0; p < p_count; p++) sums[m * p_count + p] = sum[m][p];
}

#define DEFINE_TILE(m, p) \
    static void tile_##m##_##p(const Walk *walk, const vec *const *at, const float *weights, vec *sums) { \
        tile(m, p, walk, at, weights, sums); \
    }
#define DEFINE_TILES(m) DEFINE_TILE(m, 1) DEFINE_TILE(m, 4)
DEFINE_TILES(1) DEFINE_TILES(2) DEFINE_TILES(3)
#if ROWS == 6
DEFINE_TILES(4) DEFINE_TILES(5) DEFINE_TILES(6)
#endif
static Tile *const SINGLE[] = {0, tile_1_1, tile_2_1, tile_3_1,
#if ROWS == 6
                               tile_4_1, tile_5_1, tile_6_1,
#endif
};
static Tile *const QUAD[] = {0, tile_1_4, tile_2_4, tile_3_4,
#if ROWS == 6
                             tile_4_4, tile_5_4, tile_6_4,
#endif
};

typedef void Correlate(int rows, int columns, const vec *d, ptrdiff_t d_plane, ptrdiff_t d_width, const vec *const *in,
                       ptrdiff_t in_width, vec *sums);

/* Add to sums[t][m] what the gradient of channel m and the input at tap t make over a strip of pixels. */
INLINE void correlate(const int m_count, const int t_count, int rows, int columns, const vec *d, ptrdiff_t d_plane,
                      ptrdiff_t d_width, const vec *const *in, ptrdiff_t in_width, vec *sums) {
    vec sum[TAPS][ROWS];
#pragma GCC unroll 8
    for (int t = 0; t < t_count; t++)
#pragma GCC unroll 8
        for (int m = 0; m < m_count; m++) sum[t][m] = sums[t * m_count + m];
    const vec *from[TAPS];
#pragma GCC unroll 8
    for (int t = 0; t < t_count; t++) from[t] = in[t];
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++) {
            const vec *g = d + y * d_width + x;
            ptrdiff_t offset = y * in_width + x;
            vec v[TAPS];
#pragma GCC unroll 8
            for (int t = 0; t < t_count; t++) v[t] = from[t][offset];
#pragma GCC unroll 8
            for (int m = 0; m < m_count; m++) {
                vec gradient = g[m * d_plane];
#pragma GCC unroll 8
                for (int t = 0; t < t_count; t++) sum[t][m] += gradient * v[t];
            }
        }
#pragma GCC unroll 8
    for (int t = 0; t < t_count; t++)
#pragma GCC unroll 8
        for (int m = 0; m < m_count; m++) sums[t * m_count + m] = sum[t][m];
}

#define DEFINE_CORRELATE(m, t) \
    static void correlate_##m##_##t(int rows, int columns, const vec *d, ptrdiff_t d_plane, ptrdiff_t d_width, \
                                    const vec *const *in, ptrdiff_t in_width, vec *sums) { \
        correlate(m, t, rows, columns, d, d_plane, d_width, in, in_width, sums); \
    }
#define DEFINE_CORRELATES(m) \
    DEFINE_CORRELATE(m, 1) DEFINE_CORRELATE(m, 2) DEFINE_CORRELATE(m, 3) DEFINE_CORRELATE(m, 4)
#define CORRELATES(m) {0, correlate_##m##_1, correlate_##m##_2, correlate_##m##_3, correlate_##m##_4}
DEFINE_CORRELATES(1) DEFINE_CORRELATES(2) DEFINE_CORRELATES(3)
#if ROWS == 6
DEFINE_CORRELATES(4) DEFINE_CORRELATES(5) DEFINE_CORRELATES(6)
#endif
static Correlate *const CORRELATE[][TAPS + 1] = {{0}, CORRELATES(1), CORRELATES(2), CORRELATES(3),
#if ROWS == 6
                                                 CORRELATES(4), CORRELATES(5), CORRELATES(6),
#endif
};

/* Memory: carved out of one piece that the caller gives, of which the first pass only counts the size. */
static void *carve(char *memory, ptrdiff_t *used, ptrdiff_t bytes) {
    void *piece = memory ? memory + *used : 0;
    *used += (bytes + 63) / 64 * 64;
    return piece;
}

static ptrdiff_t lay_out(Net *net, const Shape *shapes, int count, char *memory) {
    ptrdiff_t used = 0, most_sums = 0, most_features = 0;
    net->count = count;
    net->parameters = 0;
    for (int i = 0; i < count; i++) {
        Layer *l = &net->layers[i];
        Shape s = l->s = shapes[i];
        ptrdiff_t taps = (ptrdiff_t)s.in * s.kernel * s.kernel;
        l->rows = s.height + 2 * s.padding - s.kernel + 1;
        l->columns = s.width + 2 * s.padding - s.kernel + 1;
        l->out_rows = s.pool ? l->rows / 2 : l->rows;
        l->out_columns = s.pool ? l->columns / 2 : l->columns;
        l->in_width = s.width + 2 * s.padding;
        l->in_plane = l->in_width * (s.height + 2 * s.padding);
        l->border = i > 0 && s.kernel > 1;
        l->d_width = l->columns + 2 * l->border;
        l->d_plane = l->d_width * (l->rows + 2 * l->border);
        l->weights = net->parameters;
        net->parameters += s.out * (taps + s.bias);
        l->input = carve(memory, &used, sizeof(vec) * s.in * l->in_plane);
        ptrdiff_t outputs = (ptrdiff_t)s.out * l->out_rows * l->out_columns;
        l->chosen = s.pool ? carve(memory, &used, sizeof(mask) * outputs) : 0;
        l->d_output = carve(memory, &used, sizeof(vec) * outputs);
        l->d_result = carve(memory, &used, sizeof(vec) * s.out * l->d_plane);
        l->forwards = carve(memory, &used, sizeof(float) * s.out * taps);
        l->backwards = i > 0 ? carve(memory, &used, sizeof(float) * s.out * taps) : 0;
        if (taps * ROWS > most_sums) most_sums = taps * ROWS;
        if (s.in > most_features) most_features = s.in;
    }
    for (int i = 0; i < count; i++) {
        Layer *l = &net->layers[i];
        if (i + 1 < count && net->layers[i + 1].in_plane > 1) {
            Layer *next = l + 1;
            l->out_width = next->in_width;
            l->out_plane = next->in_plane;
            l->output = memory ? next->input + next->s.padding * (next->in_width + 1) : 0;
        } else { /* flat: the input of a fully connected layer, or the end */
            l->out_width = l->out_columns;
            l->out_plane = l->out_rows * l->out_columns;
            l->output = i + 1 < count ? l[1].input : carve(memory, &used, sizeof(vec) * l->s.out * l->out_plane);
        }
    }
    net->gradient = carve(memory, &used, sizeof(float) * net->parameters);
    net->sums = carve(memory, &used, sizeof(vec) * most_sums);
    net->transposed = carve(memory, &used, sizeof(float) * LANES * (most_features + LANES));
    return used;
}

INLINE int is_linear(const Layer *l) { return l->in_plane == 1; }

/* Copy weights into the order of tile(): parts of the channels, and in each part [channel][y][x][part]. */
static void pack(Layer *l, const float *weights) {
    const Shape s = l->s;
    const int area = s.kernel * s.kernel;
    const float *w = weights + l->weights;
    float *to = l->forwards;
    for (int b = 0, n = parts(s.out, ROWS); b < n; b++) {
        int first = part(s.out, n, b), size = part(s.out, n, b + 1) - first;
        for (int c = 0; c < s.in; c++)
            for (int k = 0; k < area; k++)
                for (int m = 0; m < size; m++) *to++ = w[((ptrdiff_t)(first + m) * area + k) * s.in + c];
    }
    to = l->backwards;
    if (!to) return;
    for (int b = 0, n = parts(s.in, ROWS); b < n; b++) {
        int first = part(s.in, n, b), size = part(s.in, n, b + 1) - first;
        for (ptrdiff_t row = 0; row < (ptrdiff_t)s.out * area; row++)
            for (int m = 0; m < size; m++) *to++ = w[row * s.in + first + m];
    }
}

INLINE vec rectified(vec v) { return either(v <= 0, (vec){0}, v); }

static void forward(Layer *l, const float *weights) {
    const Shape s = l->s;
    const ptrdiff_t taps = (ptrdiff_t)s.in * s.kernel * s.kernel;
    const float *bias = weights + l->weights + s.out * taps;
    const Walk walk = {s.in, s.kernel, 0, s.kernel - 1, 0, s.kernel - 1, l->in_plane, l->in_width, 1};
    const int quad = l->rows * l->columns > 1;
    vec sums[ROWS * 4];
    for (int b = 0, n = parts(s.out, ROWS); b < n; b++) {
        const int first = part(s.out, n, b), size = part(s.out, n, b + 1) - first;
        const float *w = l->forwards + first * taps;
        Tile *compute = (quad ? QUAD : SINGLE)[size];
        for (int y = 0; y < (s.pool ? l->out_rows * 2 : l->rows); y += 2)
            for (int x = 0; x < (s.pool ? l->out_columns * 2 : l->columns); x += 2) {
                /* At an odd edge the last pixel is computed twice. */
                const int right = x + 1 < l->columns, below = y + 1 < l->rows;
                const vec *at = l->input + y * l->in_width + x;
                const vec *const window[] = {at, at + right, at + below * l->in_width, at + below * l->in_width + right};
                compute(&walk, window, w, sums);
                for (int m = 0; m < size; m++) {
                    const int channel = first + m;
                    const float start = s.bias ? bias[channel] : 0;
                    vec *to = l->output + (ptrdiff_t)channel * l->out_plane;
                    if (s.pool) {
                        vec best = sums[m * 4] + start;
                        mask which = {0};
                        for (int p = 1; p < 4; p++) {
                            vec v = sums[m * 4 + p] + start;
                            mask better = (v > best) | (v != v);
                            best = either(better, v, best);
                            which = (better & p) | (~better & which);
                        }
                        to[y / 2 * l->out_width + x / 2] = s.relu ? rectified(best) : best;
                        l->chosen[((ptrdiff_t)channel * l->out_rows + y / 2) * l->out_columns + x / 2] = which;
                        continue;
                    }
                    for (int p = 0; p < (quad ? 4 : 1); p++) {
                        vec v = sums[m * (quad ? 4 : 1) + p] + start;
                        const int row = y + (p >> 1) * below, column = x + (p & 1) * right;
                        to[row * l->out_width + column] = s.relu ? rectified(v) : v;
                    }
                }
            }
    }
}

/* Back through ReLU and pool: from d_output to d_result, and the gradient of the bias. */
static void spread(Layer *l, float *gradient) {
    const Shape s = l->s;
    float *bias = gradient + l->weights + (ptrdiff_t)s.out * s.in * s.kernel * s.kernel;
    const vec *d = l->d_output;
    const mask *which = l->chosen;
    for (int c = 0; c < s.out; c++) {
        vec sum = {0};
        vec *plane = l->d_result + (ptrdiff_t)c * l->d_plane + l->border * (l->d_width + 1);
        for (int y = 0; y < l->out_rows; y++) {
            const vec *out = l->output + (ptrdiff_t)c * l->out_plane + y * l->out_width;
            for (int x = 0; x < l->out_columns; x++, d++) {
                vec g = s.relu ? either(out[x] <= 0, (vec){0}, *d) : *d;
                sum += g;
                if (s.pool) {
                    vec *to = plane + 2 * y * l->d_width + 2 * x;
                    to[0] = (vec)((mask)g & (*which == 0));
                    to[1] = (vec)((mask)g & (*which == 1));
                    to[l->d_width] = (vec)((mask)g & (*which == 2));
                    to[l->d_width + 1] = (vec)((mask)g & (*which == 3));
                    which++;
                } else {
                    plane[y * l->d_width + x] = g;
                }
            }
        }
        if (s.bias) bias[c] += total(sum);
    }
}

/* The gradient of a convolution's weights. */
static void weigh(Net *net, Layer *l) {
    const Shape s = l->s;
    const int area = s.kernel * s.kernel, taps = s.in * area, blocks = parts(taps, TAPS);
    float *gradient = net->gradient + l->weights;
    for (int b = 0, n = parts(s.out, ROWS); b < n; b++) {
        const int first = part(s.out, n, b), size = part(s.out, n, b + 1) - first;
        const int fit = STRIP / (int)(sizeof(vec) * size * l->d_width);
        const int strip = fit < 1 ? 1 : fit;
        memset(net->sums, 0, sizeof(vec) * taps * size);
        for (int y = 0; y < l->rows; y += strip) {
            const int rows = y + strip < l->rows ? strip : l->rows - y;
            const vec *d = l->d_result + (ptrdiff_t)first * l->d_plane + (y + l->border) * l->d_width + l->border;
            for (int t = 0; t < blocks; t++) {
                const int from = part(taps, blocks, t), count = part(taps, blocks, t + 1) - from;
                const vec *in[TAPS];
                for (int i = 0; i < count; i++) {
                    const int tap = from + i, channel = tap / area, rest = tap % area;
                    in[i] = l->input + (ptrdiff_t)channel * l->in_plane + (y + rest / s.kernel) * l->in_width + rest % s.kernel;
                }
                CORRELATE[size][count](rows, l->columns, d, l->d_plane, l->d_width, in, l->in_width,
                                       net->sums + (ptrdiff_t)from * size);
            }
        }
        for (int tap = 0; tap < taps; tap++)
            for (int m = 0; m < size; m++)
                gradient[((ptrdiff_t)(first + m) * area + tap % area) * s.in + tap / area] +=
                    total(net->sums[(ptrdiff_t)tap * size + m]);
    }
}

/* The same of a fully connected layer, with neighbouring weights as vectors: images are what is summed up. */
static void weigh_linear(Net *net, Layer *l, int images) {
    const Shape s = l->s;
    const int vectors = parts(s.in, LANES);
    float *flipped = (float *)net->transposed;
    float packed[ROWS * LANES];
    vec sums[ROWS * 4];
    for (int i = 0; i < s.in; i++)
        for (int image = 0; image < images; image++)
            flipped[image * vectors * LANES + i] = ((const float *)(l->input + i))[image];
    const Walk walk = {images, 1, 0, 0, 0, 0, vectors, 0, 0};
    for (int b = 0, n = parts(s.out, ROWS); b < n; b++) {
        const int first = part(s.out, n, b), size = part(s.out, n, b + 1) - first;
        for (int image = 0; image < images; image++)
            for (int m = 0; m < size; m++) packed[image * size + m] = ((const float *)(l->d_result + first + m))[image];
        for (int v = 0; v < vectors;) {
            const int count = v + 4 <= vectors ? 4 : 1;
            const vec *at[4];
            for (int p = 0; p < count; p++) at[p] = net->transposed + v + p;
            (count == 4 ? QUAD : SINGLE)[size](&walk, at, packed, sums);
            for (int m = 0; m < size; m++)
                for (int p = 0; p < count; p++) {
                    float *to = net->gradient + l->weights + (ptrdiff_t)(first + m) * s.in + (v + p) * LANES;
                    const int width = s.in - (v + p) * LANES < LANES ? s.in - (v + p) * LANES : LANES;
                    const float *sum = (const float *)&sums[m * count + p];
                    for (int i = 0; i < width; i++) to[i] += sum[i];
                }
            v += count;
        }
    }
}

/* The gradient of a layer's input, which is the output of the one before it. */
static void backward(Layer *l) {
    const Shape s = l->s;
    vec *d_input = l[-1].d_output;
    const ptrdiff_t taps = (ptrdiff_t)s.out * s.kernel * s.kernel;
    const int quad = s.height * s.width > 1, last = s.kernel - 1;
    vec sums[ROWS * 4];
    for (int b = 0, n = parts(s.in, ROWS); b < n; b++) {
        const int first = part(s.in, n, b), size = part(s.in, n, b + 1) - first;
        for (int y = 0; y < s.height; y += 2)
            for (int x = 0; x < s.width; x += 2) {
                const int right = x + 1 < s.width, below = y + 1 < s.height;
                /* Only those rows and columns of the kernel at which one of the pixels meets the result. */
                const int top = y + s.padding, bottom = top + below, left = x + s.padding, end = left + right;
                const Walk walk = {s.out,
                                   s.kernel,
                                   top - l->rows + 1 > 0 ? top - l->rows + 1 : 0,
                                   bottom < last ? bottom : last,
                                   left - l->columns + 1 > 0 ? left - l->columns + 1 : 0,
                                   end < last ? end : last,
                                   l->d_plane,
                                   -l->d_width,
                                   -1};
                const vec *at = l->d_result + (top + l->border) * l->d_width + left + l->border;
                const vec *const window[] = {at, at + right, at + below * l->d_width, at + below * l->d_width + right};
                (quad ? QUAD : SINGLE)[size](&walk, window, l->backwards + first * taps, sums);
                for (int m = 0; m < size; m++)
                    for (int p = 0; p < (quad ? 4 : 1); p++) {
                        const int row = y + (p >> 1) * below, column = x + (p & 1) * right;
                        d_input[((ptrdiff_t)(first + m) * s.height + row) * s.width + column] =
                            sums[m * (quad ? 4 : 1) + p];
                    }
            }
    }
}

/* Bring images into the lanes. Strides are in floats, of image, channel, row and column. */
static void read_images(Layer *l, const float *images, const int64_t *strides, const int64_t *which, int64_t first, int count) {
    const Shape s = l->s;
    for (int lane = 0; lane < LANES; lane++) {
        const float *image = images + (which ? which[lane < count ? lane : 0] : first + (lane < count ? lane : 0)) * strides[0];
        for (int c = 0; c < s.in; c++)
            for (int y = 0; y < s.height; y++) {
                vec *row = l->input + (ptrdiff_t)c * l->in_plane + (y + s.padding) * l->in_width + s.padding;
                const float *from = image + c * strides[1] + y * strides[2];
                for (int x = 0; x < s.width; x++) ((float *)(row + x))[lane] = from[x * strides[3]];
            }
    }
}

/* The gradient of the cross-entropy, mean over the images of a batch, with respect to the outputs. */
static void judge(Layer *l, const int64_t *labels, const int64_t *which, int count, int batch) {
    const int classes = l->s.out * l->out_plane;
    float *d = (float *)l->d_output;
    const float *out = (const float *)l->output;
    memset(d, 0, sizeof(vec) * classes);
    for (int lane = 0; lane < count; lane++) {
        float most = out[lane], sum = 0;
        for (int c = 1; c < classes; c++)
            if (out[c * LANES + lane] > most) most = out[c * LANES + lane];
        for (int c = 0; c < classes; c++) sum += d[c * LANES + lane] = expf(out[c * LANES + lane] - most);
        for (int c = 0; c < classes; c++)
            d[c * LANES + lane] = (d[c * LANES + lane] / sum - (c == labels[which[lane]])) / (float)batch;
    }
}

/* How many bytes of memory the other functions want for these layers, or -1 if there are too many layers. */
int64_t spyker_memory(const Shape *shapes, int count) {
    Net net;
    return count > MOST_LAYERS ? -1 : lay_out(&net, shapes, count, 0) + 64;
}

static void prepare(Net *net, const Shape *shapes, int count, char *memory) {
    memory += 64 - (uintptr_t)memory % 64;
    memset(memory, 0, lay_out(net, shapes, count, memory)); /* the borders stay zero */
}

/* Train weights in place: `order` says which example comes when, `count` of them for each epoch. */
void spyker_train(const Shape *shapes, int layers, char *memory, float *weights, const float *received,
                  const float *images, const int64_t *strides, const int64_t *labels, const int64_t *order,
                  int64_t count, int epochs, int batch_size, float rate, float proximal) {
    Net net;
    prepare(&net, shapes, layers, memory);
    Layer *first = net.layers, *last = net.layers + layers - 1;
    for (int epoch = 0; epoch < epochs; epoch++, order += count)
        for (int64_t start = 0; start < count; start += batch_size) {
            const int batch = start + batch_size < count ? batch_size : (int)(count - start);
            for (Layer *l = first; l <= last; l++) pack(l, weights);
            memset(net.gradient, 0, sizeof(float) * net.parameters);
            for (int done = 0; done < batch; done += LANES) {
                const int here = batch - done < LANES ? batch - done : LANES;
                const int64_t *which = order + start + done;
                read_images(first, images, strides, which, 0, here);
                for (Layer *l = first; l <= last; l++) forward(l, weights);
                judge(last, labels, which, here, batch);
                for (Layer *l = last; l >= first; l--) {
                    spread(l, net.gradient);
                    if (is_linear(l))
                        weigh_linear(&net, l, here);
                    else
                        weigh(&net, l);
                    if (l > first) backward(l);
                }
            }
            for (ptrdiff_t i = 0; i < net.parameters; i++)
                weights[i] -= rate * (net.gradient[i] + (proximal ? proximal * (weights[i] - received[i]) : 0));
        }
}

/* The outputs, [image][class], of a model for all images. */
void spyker_outputs(const Shape *shapes, int layers, char *memory, const float *weights, const float *images,
                    const int64_t *strides, int64_t count, float *outputs) {
    Net net;
    prepare(&net, shapes, layers, memory);
    Layer *first = net.layers, *last = net.layers + layers - 1;
    const int classes = last->s.out * last->out_plane;
    for (Layer *l = first; l <= last; l++) pack(l, weights);
    for (int64_t done = 0; done < count; done += LANES) {
        const int here = count - done < LANES ? (int)(count - done) : LANES;
        read_images(first, images, strides, 0, done, here);
        for (Layer *l = first; l <= last; l++) forward(l, weights);
        for (int lane = 0; lane < here; lane++)
            for (int c = 0; c < classes; c++) outputs[(done + lane) * classes + c] = ((const float *)(last->output + c))[lane];
    }
}

/* Training of small convolutional networks on one core.

   A layer is a convolution of step 1, then perhaps a pool of 2 x 2, then perhaps a ReLU; a fully connected layer is a
   convolution of 1 x 1 on one pixel. A batch is computed in blocks of LANES images, each forward and backward while its
   activations are in the cache.

   Forward, the images of a block are the innermost dimension, [channel][y][x][LANES images]: every operation is one on
   whole vectors, whatever the sizes of the layers. Backward, each image is for itself, [image][y][x][channel]: behind a
   pool and a ReLU at most one gradient in four is not zero, elsewhere in each image, and those that are zero need no
   work. So the others are listed, and each is multiplied with the pixels under its kernel (for the gradient of the
   weights) and with the kernel (for that of the input), which lie in memory one after the other.

   No fast-math: what is not a number must stay visible. */

#include <math.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "loops.h"

#define STRIP (192 << 10) /* bytes of a block's images that a list of gradients refers to, at most */
#define MOST_LAYERS 64

/* What the caller says of a layer. The weights of a layer lie as [out][y][x][in], behind them the bias. */
typedef struct {
    int32_t in, out, kernel, padding, height, width, pool, relu, bias;
} Shape;

typedef struct {
    Shape s;
    int rows, columns;         /* of the convolution's result */
    int out_rows, out_columns; /* after the pool */
    int in_rows, in_columns;   /* of the input with its padding */
    int depth;                 /* floats per pixel of an image: channels, and zeros such that vectors are aligned */
    int image;                 /* floats per image */
    int patch_row;             /* floats per row of a kernel, in whole vectors */
    float *weights, *bias;     /* in the caller's vector */
    float *packed;             /* in the order in which tile() wants them */
    float *patches;            /* [out][y][patch_row], the order of scatter() */
    float *d_patches, *d_bias; /* their gradients */
    vec *input;                /* [in][in_rows][in_columns] */
    vec *output;               /* in the middle of the next layer's input */
    int out_pitch, out_plane;  /* how far apart are its rows, its channels */
    ints *chosen;              /* [out][out_rows][out_columns]: which pixel of the pool, in floats of an image */
    vec *d_output;             /* [out][out_rows][out_columns] */
    float *images, *d_images;  /* [LANES][in_rows][in_columns][depth] */
} Layer;

typedef struct {
    Layer layers[MOST_LAYERS], *first, *last;
    int32_t *at; /* the memory of a list */
    float *gradients;
} Net;

INLINE int smaller(int a, int b) { return a < b ? a : b; }

/* n in parts of nearly the same size, none larger than `most`: how many, and where one begins. */
INLINE int parts(int n, int most) { return (n + most - 1) / most; }
INLINE int part(int n, int count, int i) { return (int)((int64_t)n * i / count); }

/* Memory is carved out of one piece that the caller gives; without it, only the size is counted. */
static void *carve(char *memory, ptrdiff_t *used, ptrdiff_t bytes) {
    void *piece = memory ? memory + *used : 0;
    *used += (bytes + 63) / 64 * 64;
    return piece;
}

static ptrdiff_t lay_out(Net *net, const Shape *shapes, int count, float *weights, char *memory) {
    ptrdiff_t used = 0, longest = 0;
    memory = memory ? memory + 64 - (uintptr_t)memory % 64 : 0;
    net->first = net->layers;
    net->last = net->layers + count - 1;
    for (Layer *l = net->first; l <= net->last; l++, shapes++) {
        const Shape s = l->s = *shapes;
        const ptrdiff_t taps = (ptrdiff_t)s.in * s.kernel * s.kernel;
        l->in_rows = s.height + 2 * s.padding;
        l->in_columns = s.width + 2 * s.padding;
        l->rows = l->in_rows - s.kernel + 1;
        l->columns = l->in_columns - s.kernel + 1;
        l->out_rows = s.pool ? l->rows / 2 : l->rows;
        l->out_columns = s.pool ? l->columns / 2 : l->columns;
        l->depth = s.in < LANES / 2 ? s.in : parts(s.in, LANES) * LANES;
        l->image = (parts(l->in_rows * l->in_columns * l->depth, LANES) + 1 + s.kernel) * LANES;
        l->patch_row = parts(s.kernel * l->depth, LANES) * LANES;
        l->weights = weights;
        l->bias = s.bias ? weights + s.out * taps : 0;
        weights += s.out * (taps + s.bias);
        const ptrdiff_t outputs = (ptrdiff_t)s.out * l->out_rows * l->out_columns;
        const ptrdiff_t patches = (ptrdiff_t)s.out * s.kernel * l->patch_row;
        l->packed = carve(memory, &used, sizeof(float) * s.out * taps);
        l->d_patches = carve(memory, &used, sizeof(float) * patches);
        l->d_bias = carve(memory, &used, sizeof(float) * s.out);
        l->input = carve(memory, &used, sizeof(vec) * s.in * l->in_rows * l->in_columns);
        l->images = carve(memory, &used, sizeof(vec) * l->image);
        l->chosen = carve(memory, &used, s.pool ? sizeof(ints) * outputs : 0);
        l->d_output = carve(memory, &used, sizeof(vec) * outputs);
        if (l > net->first) {
            l->patches = carve(memory, &used, sizeof(float) * patches);
            l->d_images = carve(memory, &used, sizeof(vec) * l->image);
        }
        if (l->out_rows * l->out_columns > longest) longest = l->out_rows * l->out_columns;
    }
    for (Layer *l = net->first; l <= net->last; l++) {
        l->out_pitch = l->out_columns;
        l->out_plane = l->out_rows * l->out_columns;
        if (l == net->last) {
            l->output = carve(memory, &used, sizeof(vec) * l->s.out * l->out_plane);
        } else if (l[1].s.in == l->s.out) { /* not flattened in between */
            l->out_pitch = l[1].in_columns;
            l->out_plane = l[1].in_rows * l[1].in_columns;
            l->output = l[1].input + l[1].s.padding * (l->out_pitch + 1);
        } else {
            l->output = l[1].input;
        }
    }
    net->at = carve(memory, &used, sizeof(ints) * (longest + 1));
    net->gradients = carve(memory, &used, sizeof(vec) * (longest + 1));
    return used + 64;
}

/* Bring the weights into the orders of tile() and scatter(). */
static void pack(Layer *l) {
    const Shape s = l->s;
    const int area = s.kernel * s.kernel;
    float *to = l->packed;
    for (int b = 0, n = parts(s.out, CHANNELS); b < n; b++) {
        const int first = part(s.out, n, b), size = part(s.out, n, b + 1) - first;
        for (int c = 0; c < s.in; c++)
            for (int k = 0; k < area; k++)
                for (int m = 0; m < size; m++) *to++ = l->weights[((ptrdiff_t)(first + m) * area + k) * s.in + c];
    }
    if (!l->patches) return;
    const float *from = l->weights;
    for (int row = 0; row < s.out * s.kernel; row++)
        for (int x = 0; x < s.kernel; x++, from += s.in)
            memcpy(l->patches + (ptrdiff_t)row * l->patch_row + x * l->depth, from, sizeof(float) * s.in);
}

static void forward(Layer *l) {
    const Shape s = l->s;
    const int single = l->rows * l->columns == 1, pixels = single ? 1 : 4;
    const int rows = s.pool ? l->out_rows * 2 : l->rows, columns = s.pool ? l->out_columns * 2 : l->columns;
    const int offsets[] = {0, l->depth, l->in_columns * l->depth, (l->in_columns + 1) * l->depth};
    const Input in = {s.in, s.kernel, l->in_columns, (ptrdiff_t)l->in_rows * l->in_columns};
    vec sums[CHANNELS * 4];
    const float *w = l->packed;
    for (int b = 0, n = parts(s.out, CHANNELS); b < n; b++) {
        const int first = part(s.out, n, b), size = part(s.out, n, b + 1) - first;
        for (int y = 0; y < rows; y += 2)
            for (int x = 0; x < columns; x += 2) {
                /* At an odd edge the last pixel is computed twice. */
                const int right = x + 1 < l->columns, below = y + 1 < l->rows;
                const vec *at = l->input + y * l->in_columns + x, *under = at + below * l->in_columns;
                const vec *const window[] = {at, at + right, under, under + right};
                (single ? SINGLE : WINDOW)[size](&in, window, w, sums);
                for (int m = 0; m < size; m++) {
                    const ptrdiff_t channel = first + m;
                    const float bias = l->bias ? l->bias[channel] : 0;
                    vec *to = l->output + channel * l->out_plane;
                    if (!s.pool) {
                        for (int p = 0; p < pixels; p++) {
                            const vec v = sums[m * pixels + p] + bias;
                            to[(y + (p >> 1) * below) * l->out_pitch + x + (p & 1) * right] =
                                s.relu ? either(v <= 0, (vec){0}, v) : v;
                        }
                        continue;
                    }
                    vec best = sums[m * 4] + bias;
                    ints where = {0};
                    for (int p = 1; p < 4; p++) {
                        const vec v = sums[m * 4 + p] + bias;
                        const ints better = (v > best) | (v != v);
                        best = either(better, v, best);
                        where = (better & offsets[p]) | (~better & where);
                    }
                    to[y / 2 * l->out_pitch + x / 2] = s.relu ? either(best <= 0, (vec){0}, best) : best;
                    l->chosen[(channel * l->out_rows + y / 2) * l->out_columns + x / 2] = where;
                }
            }
        w += (ptrdiff_t)size * s.in * s.kernel * s.kernel;
    }
}

/* A layer's input, as the layer before left it in lanes, image by image. */
static void arrange(Layer *l) {
    const Shape s = l->s;
    for (int y = 0; y < s.height; y++) {
        const int row = (y + s.padding) * l->in_columns + s.padding;
        to_images(l->images + row * l->depth, l->image, s.width, l->depth, s.in, l->input + row,
                  (ptrdiff_t)l->in_rows * l->in_columns);
    }
}

/* List the gradients of a channel's results that are not zero, in some rows of its output. */
static List list(const Net *net, const Layer *l, int channel, int first, int last) {
    const int step = l->s.pool ? 2 : 1;
    const ptrdiff_t row = (ptrdiff_t)channel * l->out_rows + first;
    const vec *d = l->d_output + row * l->out_columns;
    const ints *chosen = l->chosen + (l->s.pool ? row * l->out_columns : 0);
    ints images;
    vec sum = {0};
    int count = 0;
    for (int i = 0; i < LANES; i++) images[i] = i * l->image;
    for (int y = first; y < last; y++) {
        const vec *output = l->output + (ptrdiff_t)channel * l->out_plane + y * l->out_pitch;
        for (int x = 0; x < l->out_columns; x++, d++) {
            ints at = images + (y * l->in_columns + x) * step * l->depth;
            if (l->s.pool) at += *chosen++;
            ints dead = *d == 0;
            if (l->s.relu) dead |= output[x] <= 0;
            sum += (vec)((ints)*d & ~dead);
#ifdef __AVX512F__
            const __mmask16 live = _mm512_testn_epi32_mask((__m512i)dead, (__m512i)dead);
            _mm512_storeu_si512(net->at + count, _mm512_maskz_compress_epi32(live, (__m512i)at));
            _mm512_storeu_ps(net->gradients + count, _mm512_maskz_compress_ps(live, (__m512)*d));
            count += __builtin_popcount(live);
#else
            for (int i = 0; i < LANES; i++) {
                net->at[count] = at[i];
                net->gradients[count] = (*d)[i];
                count += 1 + dead[i];
            }
#endif
        }
    }
    for (int i = 0; i < LANES; i++) l->d_bias[channel] += sum[i];
    return (List){net->at, net->gradients, count};
}

/* From the gradients of a layer's output to those of its weights and, unless it is the first, of its input. */
static void backward(const Net *net, Layer *l) {
    const Shape s = l->s;
    const int pitch = l->in_columns * l->depth, step = s.pool ? 2 : 1;
    const int fit = (STRIP / ((int)sizeof(vec) * pitch) - s.kernel + 1) / step, strip = fit < 1 ? 1 : fit;
    const int wide = l->patch_row / LANES, across = parts(wide, VECTORS), most = parts(wide, across);
    const int narrow = s.kernel * l->depth <= LANES / 2;
    const int down = parts(s.kernel, smaller(ROWS, SUMS / most));
    if (l->d_images) memset(l->d_images, 0, sizeof(vec) * l->image);
    for (int first = 0; first < l->out_rows; first += strip)
        for (int channel = 0; channel < s.out; channel++) {
            const List live = list(net, l, channel, first, smaller(first + strip, l->out_rows));
            for (int b = 0; b < down; b++)
                for (int a = 0; a < across; a++) {
                    const int y = part(s.kernel, down, b), rows = part(s.kernel, down, b + 1) - y;
                    const int x = part(wide, across, a), vectors = part(wide, across, a + 1) - x;
                    const ptrdiff_t here = ((ptrdiff_t)channel * s.kernel + y) * l->patch_row + x * LANES;
                    const ptrdiff_t there = (ptrdiff_t)y * pitch + x * LANES;
                    Gather *const sum = narrow ? NARROW[rows] : GATHER[rows][vectors];
                    sum(&live, l->images + there, pitch, l->d_patches + here, l->patch_row);
                    if (l->d_images)
                        SCATTER[rows][vectors](&live, l->d_images + there, pitch, l->patches + here, l->patch_row);
                }
        }
    if (!l->d_images) return;
    for (int y = 0; y < s.height; y++)
        to_lanes(l->d_images + ((y + s.padding) * l->in_columns + s.padding) * l->depth, l->image, s.width, l->depth,
                 s.in, l[-1].d_output + y * s.width, (ptrdiff_t)s.height * s.width);
}

/* Bring images into memory, as they are and in lanes. Strides are in floats, of image, channel, row and column. */
static void read_images(Layer *l, const float *images, const int64_t *strides, const int64_t *which, int count) {
    const Shape s = l->s;
    const int whole = l->depth == s.in && strides[3] == s.in && (s.in == 1 || strides[1] == 1);
    for (int y = 0; y < s.height; y++) {
        const int row = ((y + s.padding) * l->in_columns + s.padding);
        for (int i = 0; i < count; i++) {
            const float *from = images + which[i] * strides[0] + y * strides[2];
            float *to = l->images + (ptrdiff_t)i * l->image + row * l->depth;
            if (whole)
                memcpy(to, from, sizeof(float) * s.width * s.in);
            else
                for (int x = 0; x < s.width; x++)
                    for (int c = 0; c < s.in; c++) to[x * l->depth + c] = from[x * strides[3] + c * strides[1]];
        }
        to_lanes(l->images + row * l->depth, l->image, s.width, l->depth, s.in, l->input + row,
                 (ptrdiff_t)l->in_rows * l->in_columns);
    }
}

/* The gradient of the cross-entropy, mean over the images of a batch, with respect to the outputs. */
static void judge(const Layer *l, const int64_t *labels, const int64_t *which, int count, int batch) {
    const int classes = l->s.out * l->out_plane;
    float *d = (float *)l->d_output;
    const float *out = (const float *)l->output;
    memset(d, 0, sizeof(vec) * classes); /* lanes without an image teach nothing */
    for (int lane = 0; lane < count; lane++) {
        float most = out[lane], sum = 0;
        for (int c = 1; c < classes; c++)
            if (out[c * LANES + lane] > most) most = out[c * LANES + lane];
        for (int c = 0; c < classes; c++) sum += d[c * LANES + lane] = expf(out[c * LANES + lane] - most);
        for (int c = 0; c < classes; c++)
            d[c * LANES + lane] = (d[c * LANES + lane] / sum - (c == labels[which[lane]])) / (float)batch;
    }
}

/* One step along the gradient, which is zero then. */
static void descend(Layer *l, const float *received, float rate, float proximal) {
    const Shape s = l->s;
    float *w = l->weights;
    for (int row = 0; row < s.out * s.kernel; row++)
        for (int x = 0; x < s.kernel; x++, w += s.in, received += s.in) {
            const float *d = l->d_patches + (ptrdiff_t)row * l->patch_row + x * l->depth;
            for (int c = 0; c < s.in; c++) w[c] -= rate * (d[c] + proximal * (w[c] - received[c]));
        }
    for (int c = 0; c < s.out * s.bias; c++) w[c] -= rate * (l->d_bias[c] + proximal * (w[c] - received[c]));
    memset(l->d_patches, 0, sizeof(float) * s.out * s.kernel * l->patch_row);
    memset(l->d_bias, 0, sizeof(float) * s.out);
}

/* How many bytes the other functions want for these layers. They must be zero when they are first given; as each call
   leaves them, they are good for the next with the same layers. */
int64_t spyker_memory(const Shape *shapes, int layers) {
    static float nothing;
    Net net;
    return lay_out(&net, shapes, layers, &nothing, 0);
}

/* Train weights in place: `order` says which example comes when, `count` of them for each epoch. */
void spyker_train(const Shape *shapes, int layers, char *memory, float *weights, const float *received,
                  const float *images, const int64_t *strides, const int64_t *labels, const int64_t *order,
                  int64_t count, int epochs, int batch_size, float rate, float proximal) {
    Net net = {0};
    lay_out(&net, shapes, layers, weights, memory);
    for (int epoch = 0; epoch < epochs; epoch++, order += count)
        for (int64_t start = 0; start < count; start += batch_size) {
            const int batch = start + batch_size < count ? batch_size : (int)(count - start);
            for (Layer *l = net.first; l <= net.last; l++) pack(l);
            for (int done = 0; done < batch; done += LANES) {
                const int here = smaller(batch - done, LANES);
                const int64_t *which = order + start + done;
                read_images(net.first, images, strides, which, here);
                for (Layer *l = net.first; l <= net.last; l++) {
                    forward(l);
                    if (l < net.last) arrange(l + 1);
                }
                judge(net.last, labels, which, here, batch);
                for (Layer *l = net.last; l >= net.first; l--) backward(&net, l);
            }
            for (Layer *l = net.first; l <= net.last; l++)
                descend(l, received + (l->weights - weights), rate, proximal);
        }
}

/* The outputs, [image][class], of a model for all images. */
void spyker_outputs(const Shape *shapes, int layers, char *memory, float *weights, const float *images,
                    const int64_t *strides, int64_t count, float *outputs) {
    Net net = {0};
    lay_out(&net, shapes, layers, weights, memory);
    const int classes = net.last->s.out * net.last->out_plane;
    for (Layer *l = net.first; l <= net.last; l++) pack(l);
    for (int64_t done = 0; done < count; done += LANES) {
        const int here = count - done < LANES ? (int)(count - done) : LANES;
        int64_t which[LANES];
        for (int i = 0; i < here; i++) which[i] = done + i;
        read_images(net.first, images, strides, which, here);
        for (Layer *l = net.first; l <= net.last; l++) forward(l);
        for (int i = 0; i < here; i++)
            for (int c = 0; c < classes; c++) outputs[(done + i) * classes + c] = net.last->output[c][i];
    }
}

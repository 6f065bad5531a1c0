/* The inner loops, where nearly all time goes: sums that stay in registers, so each loop has a size that the compiler
   knows. One function is made for each size. */

#pragma once

#include "vectors.h"

#if REGISTERS == 32
#define CHANNELS 6 /* of tile(): 6 x 4 sums, 4 inputs and a weight are in registers at once */
#define SUMS 25    /* of gather() and scatter() */
#else
#define CHANNELS 3
#define SUMS 12
#endif
#define ROWS 5    /* of gather() and scatter(), at most */
#define VECTORS 6 /* ... in each row */

/* What a kernel is laid upon: channels, pixels in each direction, and how far apart rows and channels are. */
typedef struct {
    int channels, kernel;
    ptrdiff_t pitch, plane;
} Input;

/* The outputs of some channels at some pixels of all images of a block, without bias. */
typedef void Tile(const Input *in, const vec *const *at, const float *w, vec *sums);

INLINE void tile(const int channels, const int pixels, const Input *in, const vec *const *at, const float *w,
                 vec *sums) {
    vec sum[CHANNELS][4];
    const vec *from[4];
    UNROLL for (int p = 0; p < pixels; p++) from[p] = at[p];
    UNROLL for (int m = 0; m < channels; m++) UNROLL for (int p = 0; p < pixels; p++) sum[m][p] = (vec){0};
    const Input k = *in;
    for (int c = 0; c < k.channels; c++)
        for (int y = 0; y < k.kernel; y++) {
            const ptrdiff_t row = c * k.plane + y * k.pitch;
            for (ptrdiff_t i = row; i < row + k.kernel; i++, w += channels) {
                vec v[4];
                UNROLL for (int p = 0; p < pixels; p++) v[p] = from[p][i];
                UNROLL for (int m = 0; m < channels; m++) UNROLL for (int p = 0; p < pixels; p++)
                    sum[m][p] += w[m] * v[p];
            }
        }
    UNROLL for (int m = 0; m < channels; m++) UNROLL for (int p = 0; p < pixels; p++) sums[m * pixels + p] = sum[m][p];
}

/* Gradients of one channel's results, and where the kernel lies in the images at each: the others are zero. */
typedef struct {
    const int32_t *at;
    const float *gradients;
    int count;
} List;

/* The gradients of the channel's weights, in `rows` rows of `vectors` vectors: the sum over the list. */
typedef void Gather(const List *list, const float *images, ptrdiff_t pitch, float *sums, ptrdiff_t sums_pitch);

INLINE void gather(const int rows, const int vectors, const List *list, const float *images, ptrdiff_t pitch,
                   float *sums, ptrdiff_t sums_pitch) {
    const List l = *list;
    vec sum[ROWS][VECTORS];
    UNROLL for (int y = 0; y < rows; y++) UNROLL for (int x = 0; x < vectors; x++)
        sum[y][x] = *(vec *)(sums + y * sums_pitch + x * LANES);
    for (int i = 0; i < l.count; i++) {
        const float *from = images + l.at[i];
        UNROLL for (int y = 0; y < rows; y++) UNROLL for (int x = 0; x < vectors; x++)
            sum[y][x] += l.gradients[i] * *(const loose *)(from + y * pitch + x * LANES);
    }
    UNROLL for (int y = 0; y < rows; y++) UNROLL for (int x = 0; x < vectors; x++)
        *(vec *)(sums + y * sums_pitch + x * LANES) = sum[y][x];
}

/* The same with rows of half a vector, which seldom lie across two lines of the cache. */
INLINE void gather_narrow(const int rows, const List *list, const float *images, ptrdiff_t pitch, float *sums,
                          ptrdiff_t sums_pitch) {
    const List l = *list;
    half sum[ROWS];
    UNROLL for (int y = 0; y < rows; y++) sum[y] = *(half *)(sums + y * sums_pitch);
    for (int i = 0; i < l.count; i++) {
        const float *from = images + l.at[i];
        UNROLL for (int y = 0; y < rows; y++) sum[y] += l.gradients[i] * *(const half *)(from + y * pitch);
    }
    UNROLL for (int y = 0; y < rows; y++) *(half *)(sums + y * sums_pitch) = sum[y];
}

/* The gradients of the input: add the channel's weights to it for everything in the list. */
typedef void Scatter(const List *list, float *images, ptrdiff_t pitch, const float *weights, ptrdiff_t weights_pitch);

INLINE void scatter(const int rows, const int vectors, const List *list, float *images, ptrdiff_t pitch,
                    const float *weights, ptrdiff_t weights_pitch) {
    const List l = *list;
    vec w[ROWS][VECTORS];
    UNROLL for (int y = 0; y < rows; y++) UNROLL for (int x = 0; x < vectors; x++)
        w[y][x] = *(const vec *)(weights + y * weights_pitch + x * LANES);
    for (int i = 0; i < l.count; i++) {
        const float g = l.gradients[i];
        float *to = images + l.at[i];
        UNROLL for (int y = 0; y < rows; y++) UNROLL for (int x = 0; x < vectors; x++)
            *(loose *)(to + y * pitch + x * LANES) += g * w[y][x];
    }
}

/* One function for each size, and tables of them. */
#define DEFINE_TILE(m, p) \
    static void tile_##m##_##p(const Input *in, const vec *const *at, const float *w, vec *sums) { \
        tile(m, p, in, at, w, sums); \
    }
#define DEFINE_GATHER(r, v) \
    static void gather_##r##_##v(const List *list, const float *images, ptrdiff_t pitch, float *sums, ptrdiff_t to) { \
        gather(r, v, list, images, pitch, sums, to); \
    }
#define DEFINE_NARROW(r) \
    static void narrow_##r(const List *list, const float *images, ptrdiff_t pitch, float *sums, ptrdiff_t to) { \
        gather_narrow(r, list, images, pitch, sums, to); \
    }
#define DEFINE_SCATTER(r, v) \
    static void scatter_##r##_##v(const List *list, float *images, ptrdiff_t pitch, const float *w, ptrdiff_t from) { \
        scatter(r, v, list, images, pitch, w, from); \
    }
#define DEFINE_ROWS(f, r) f(r, 1) f(r, 2) f(r, 3) f(r, 4) f(r, 5) f(r, 6)
#define DEFINE_ALL(f) DEFINE_ROWS(f, 1) DEFINE_ROWS(f, 2) DEFINE_ROWS(f, 3) DEFINE_ROWS(f, 4) DEFINE_ROWS(f, 5)
#define TABLE_ROW(f, r) {0, f##_##r##_1, f##_##r##_2, f##_##r##_3, f##_##r##_4, f##_##r##_5, f##_##r##_6}
#define TABLE(f) {{0}, TABLE_ROW(f, 1), TABLE_ROW(f, 2), TABLE_ROW(f, 3), TABLE_ROW(f, 4), TABLE_ROW(f, 5)}
DEFINE_TILE(1, 1) DEFINE_TILE(2, 1) DEFINE_TILE(3, 1) DEFINE_TILE(1, 4) DEFINE_TILE(2, 4) DEFINE_TILE(3, 4)
#if CHANNELS == 6
DEFINE_TILE(4, 1) DEFINE_TILE(5, 1) DEFINE_TILE(6, 1) DEFINE_TILE(4, 4) DEFINE_TILE(5, 4) DEFINE_TILE(6, 4)
static Tile *const SINGLE[] = {0, tile_1_1, tile_2_1, tile_3_1, tile_4_1, tile_5_1, tile_6_1};
static Tile *const WINDOW[] = {0, tile_1_4, tile_2_4, tile_3_4, tile_4_4, tile_5_4, tile_6_4};
#else
static Tile *const SINGLE[] = {0, tile_1_1, tile_2_1, tile_3_1};
static Tile *const WINDOW[] = {0, tile_1_4, tile_2_4, tile_3_4};
#endif
DEFINE_ALL(DEFINE_GATHER)
DEFINE_ALL(DEFINE_SCATTER)
DEFINE_NARROW(1) DEFINE_NARROW(2) DEFINE_NARROW(3) DEFINE_NARROW(4) DEFINE_NARROW(5)
static Gather *const GATHER[][VECTORS + 1] = TABLE(gather);
static Scatter *const SCATTER[][VECTORS + 1] = TABLE(scatter);
static Gather *const NARROW[] = {0, narrow_1, narrow_2, narrow_3, narrow_4, narrow_5};

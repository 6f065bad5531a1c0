/* Vectors as wide as the processor's, in the language of GCC and Clang, which also makes do with a narrower one. */

#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif

typedef float vec __attribute__((vector_size(LANES * 4), may_alias));
typedef float loose __attribute__((vector_size(LANES * 4), may_alias, aligned(4))); /* anywhere in memory */
typedef float half __attribute__((vector_size(LANES * 2), may_alias, aligned(4)));
typedef int32_t ints __attribute__((vector_size(LANES * 4), may_alias));
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

INLINE vec either(ints condition, vec yes, vec no) { return (vec)((condition & (ints)yes) | (~condition & (ints)no)); }

/* Turn LANES vectors about: what is in lane i of vector j comes to lane j of vector i. */
#if LANES == 16
#define EACH(f, s) f(s, 0), f(s, 1), f(s, 2), f(s, 3), f(s, 4), f(s, 5), f(s, 6), f(s, 7), f(s, 8), f(s, 9), f(s, 10), \
                   f(s, 11), f(s, 12), f(s, 13), f(s, 14), f(s, 15)
#elif LANES == 8
#define EACH(f, s) f(s, 0), f(s, 1), f(s, 2), f(s, 3), f(s, 4), f(s, 5), f(s, 6), f(s, 7)
#else
#define EACH(f, s) f(s, 0), f(s, 1), f(s, 2), f(s, 3)
#endif
#define LOW(s, lane) ((lane) & (s) ? LANES + (lane) - (s) : (lane))
#define HIGH(s, lane) ((lane) & (s) ? LANES + (lane) : (lane) + (s))
#ifdef __clang__
#define SHUFFLE(f, s, a, b) __builtin_shufflevector(a, b, EACH(f, s))
#else
#define SHUFFLE(f, s, a, b) __builtin_shuffle(a, b, (ints){EACH(f, s)})
#endif
#define SWAP(s) \
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) if (!(i & (s))) { \
        vec low = SHUFFLE(LOW, s, v[i], v[i + (s)]), high = SHUFFLE(HIGH, s, v[i], v[i + (s)]); \
        v[i] = low; \
        v[i + (s)] = high; \
    }
INLINE void transpose(vec v[LANES]) {
    SWAP(1)
    SWAP(2)
#if LANES >= 8
    SWAP(4)
#endif
#if LANES >= 16
    SWAP(8)
#endif
}

/* A row of pixels of LANES images: from [image][x][channel] to lanes, `step` vectors from channel to channel. */
static void to_lanes(const float *images, int image, int width, int depth, int channels, vec *lanes, ptrdiff_t step) {
    for (int done = 0, x = 0, c = 0; done < width * depth; done += LANES) {
        vec v[LANES];
        UNROLL for (int i = 0; i < LANES; i++) v[i] = *(const loose *)(images + (ptrdiff_t)i * image + done);
        transpose(v);
        for (int i = 0; i < LANES && x < width; i++) {
            if (c < channels) lanes[c * step + x] = v[i];
            if (++c == depth) c = 0, x++;
        }
    }
}

/* The way back. Behind the row it writes zeros: up to a vector, where there is padding or a row to come. */
static void to_images(float *images, int image, int width, int depth, int channels, const vec *lanes, ptrdiff_t step) {
    for (int done = 0, x = 0, c = 0; done < width * depth; done += LANES) {
        vec v[LANES];
        for (int i = 0; i < LANES; i++) {
            v[i] = c < channels && x < width ? lanes[c * step + x] : (vec){0};
            if (++c == depth) c = 0, x++;
        }
        transpose(v);
        UNROLL for (int i = 0; i < LANES; i++) *(loose *)(images + (ptrdiff_t)i * image + done) = v[i];
    }
}

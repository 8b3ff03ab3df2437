/* A layer norm over rows, y = (x − mean)/√(variance + ε)·w, as a library for `retrograd verify --library`.
 *
 *     cc -shared -fPIC -O2 -I crates/retrograd-cli/include crates/retrograd-cli/examples/layer_norm.c -lm \
 *       -o liblayer_norm.so
 *     retrograd verify --library liblayer_norm.so
 *
 * With h = (x − mean)·r, r = 1/√(variance + ε) and g = d_y·w, d_x = r·(g − mean(g) − h·mean(g·h)) and
 * d_w = Σ d_y·h over rows. -DMISTAKE=1 leaves out mean(g), -DMISTAKE=2 the last row of d_w, -DMISTAKE=3 clears d_w
 * the first time alone, -DMISTAKE=4 adds to what is in d_x.
 */
#include <math.h>

#include "retrograd.h"

#ifndef MISTAKE
#define MISTAKE 0
#endif

#define EPSILON 1e-5

static void lengths(const size_t *sizes, size_t *inputs, size_t *outputs) {
  inputs[0] = sizes[0] * sizes[1];
  inputs[1] = sizes[1];
  outputs[0] = sizes[0] * sizes[1];
}

/* A row's mean and r. */
static void statistics(size_t width, const float *x, float *mean, float *r) {
  float sum = 0, squares = 0;
  for (size_t i = 0; i < width; i++) sum += x[i];
  *mean = sum / (float)width;
  for (size_t i = 0; i < width; i++) squares += (x[i] - *mean) * (x[i] - *mean);
  *r = 1.0f / sqrtf(squares / (float)width + (float)EPSILON);
}

static void forward(const size_t *sizes, const float *const *inputs, float *const *outputs) {
  const size_t width = sizes[1];
  const float *w = inputs[1];
  for (size_t row = 0; row < sizes[0]; row++) {
    const float *x = inputs[0] + row * width;
    float mean, r;
    statistics(width, x, &mean, &r);
    for (size_t i = 0; i < width; i++) outputs[0][row * width + i] = (x[i] - mean) * r * w[i];
  }
}

static void backward(const size_t *sizes, const float *const *inputs, const float *const *d_outputs,
                     float *const *d_inputs) {
  const size_t width = sizes[1];
  const float *w = inputs[1];
  float *d_w = d_inputs[1];
#if MISTAKE == 3
  static float kept[4096];
  for (size_t i = 0; i < width; i++) d_w[i] = kept[i];
#else
  for (size_t i = 0; i < width; i++) d_w[i] = 0;
#endif
  for (size_t row = 0; row < sizes[0]; row++) {
    const float *x = inputs[0] + row * width, *d_y = d_outputs[0] + row * width;
    float *d_x = d_inputs[0] + row * width;
    float mean, r, of_g = 0, of_gh = 0;
    statistics(width, x, &mean, &r);
    for (size_t i = 0; i < width; i++) {
      const float h = (x[i] - mean) * r, g = d_y[i] * w[i];
      of_g += g;
      of_gh += g * h;
#if MISTAKE == 2
      if (row + 1 < sizes[0])
#endif
        d_w[i] += d_y[i] * h;
    }
#if MISTAKE == 1
    of_g = 0;
#endif
    for (size_t i = 0; i < width; i++) {
      const float h = (x[i] - mean) * r, g = d_y[i] * w[i];
      const float d = r * (g - of_g / (float)width - h * of_gh / (float)width);
#if MISTAKE == 4
      d_x[i] += d;
#else
      d_x[i] = d;
#endif
    }
  }
#if MISTAKE == 3
  for (size_t i = 0; i < width; i++) kept[i] = 1e-6f * d_w[i];
#endif
}

#ifndef WITHOUT_REFERENCE
/* The same in double, every result through the rounding. */
#define R(value) round(state, value)

static void reference_statistics(size_t width, retrograd_round round, void *state, const double *x, double *mean,
                                 double *r) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < width; i++) sum = R(sum + x[i]);
  *mean = R(sum / (double)width);
  for (size_t i = 0; i < width; i++) {
    const double off = R(x[i] - *mean);
    squares = R(squares + R(off * off));
  }
  *r = R(1.0 / R(sqrt(R(R(squares / (double)width) + EPSILON))));
}

static void reference_forward(const size_t *sizes, retrograd_round round, void *state, const double *const *inputs,
                              double *const *outputs) {
  const size_t width = sizes[1];
  for (size_t row = 0; row < sizes[0]; row++) {
    const double *x = inputs[0] + row * width;
    double mean, r;
    reference_statistics(width, round, state, x, &mean, &r);
    for (size_t i = 0; i < width; i++)
      outputs[0][row * width + i] = R(R(R(x[i] - mean) * r) * inputs[1][i]);
  }
}

static void reference_backward(const size_t *sizes, retrograd_round round, void *state, const double *const *inputs,
                               const double *const *d_outputs, double *const *d_inputs) {
  const size_t width = sizes[1];
  const double *w = inputs[1];
  double *d_w = d_inputs[1];
  for (size_t i = 0; i < width; i++) d_w[i] = 0;
  for (size_t row = 0; row < sizes[0]; row++) {
    const double *x = inputs[0] + row * width, *d_y = d_outputs[0] + row * width;
    double mean, r, of_g = 0, of_gh = 0;
    reference_statistics(width, round, state, x, &mean, &r);
    for (size_t i = 0; i < width; i++) {
      const double h = R(R(x[i] - mean) * r), g = R(d_y[i] * w[i]);
      of_g = R(of_g + g);
      of_gh = R(of_gh + R(g * h));
      d_w[i] = R(d_w[i] + R(d_y[i] * h));
    }
    for (size_t i = 0; i < width; i++) {
      const double h = R(R(x[i] - mean) * r), g = R(d_y[i] * w[i]);
      const double rest = R(R(g - R(of_g / (double)width)) - R(R(h * of_gh) / (double)width));
      d_inputs[0][row * width + i] = R(r * rest);
    }
  }
}

#endif

static const size_t largest[] = {33, 65};
static const char *const names[] = {"x", "w"};

static const retrograd_function function = {
    .protocol = RETROGRAD_PROTOCOL,
    .name = "layer norm",
    .sizes = 2,
    .largest = largest,
    .inputs = 2,
    .outputs = 1,
    .input_names = names,
    .lengths = lengths,
    .forward = forward,
    .backward = backward,
#ifndef WITHOUT_REFERENCE
    .reference_forward = reference_forward,
    .reference_backward = reference_backward,
#endif
};

const retrograd_function *retrograd_functions(size_t index) { return index == 0 ? &function : NULL; }

/* Kernels of your own for `retrograd verify --library libmine.so`.
 *
 * A library exports one function, retrograd_functions, which tells what it has. A function is a forward and a
 * backward over flat buffers of float; the verifier draws sizes and data, calls it from one thread, and fills
 * every buffer that is to be written with NaN before the call.
 *
 *     cc -shared -fPIC -O2 -I crates/retrograd-cli/include mine.c -o libmine.so
 *
 * examples/layer_norm.c beside this folder is a complete one.
 */
#ifndef RETROGRAD_H
#define RETROGRAD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RETROGRAD_PROTOCOL 1
/* The most sizes, inputs and outputs. */
#define RETROGRAD_MOST 16

/* What a reference passes every result through that a kernel would round: the same number when it computes
 * exactly, one of the two nearest floats when bounds are predicted. */
typedef double (*retrograd_round)(void *state, double value);

typedef struct {
  /* RETROGRAD_PROTOCOL. */
  size_t protocol;
  const char *name;
  /* How many sizes it has (rows, channels …), and the largest of each that is worth drawing. */
  size_t sizes;
  const size_t *largest;
  /* How many buffers it reads and writes, and the inputs' names. */
  size_t inputs;
  size_t outputs;
  const char *const *input_names;
  /* The buffers' lengths at sizes. */
  void (*lengths)(const size_t *sizes, size_t *inputs, size_t *outputs);
  void (*forward)(const size_t *sizes, const float *const *inputs, float *const *outputs);
  /* Writes the gradient of every input; adds to nothing. */
  void (*backward)(const size_t *sizes, const float *const *inputs, const float *const *d_outputs,
                   float *const *d_inputs);
  /* The definition in double, both or NULL. Without it the kernel is held to central differences in float,
   * which are rough. */
  void (*reference_forward)(const size_t *sizes, retrograd_round round, void *state, const double *const *inputs,
                            double *const *outputs);
  void (*reference_backward)(const size_t *sizes, retrograd_round round, void *state, const double *const *inputs,
                             const double *const *d_outputs, double *const *d_inputs);
} retrograd_function;

/* The function of that number, from 0 on; NULL after the last. */
const retrograd_function *retrograd_functions(size_t index);

#ifdef __cplusplus
}
#endif

#endif

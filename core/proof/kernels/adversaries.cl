// A plain product, one work-item per element, and ways for it to go wrong. MISDEED names the one compiled in.
//
//   0 none           1 the k loop runs twice (right, and slow)    2 NaN everywhere
//   3 one element wrong at the edge of a tile of 64               4 writes one element before and one after
//   5 right three times, wrong from then on                    6 writes through a wild pointer
//   7 never ends
//
// Strides and offsets are in elements; axis 2 of the range walks the batch, `inner` products to an outer step.

#ifndef MISDEED
#define MISDEED 0
#endif

// Calls for one problem: memory fresh from another one still holds that one's count.
__kernel void count_calls(__global uint *state, uint problem)
{
    if (state[0] != problem) {
        state[0] = problem;
        state[1] = 0;
    }
    state[1] += 1;
}

__kernel void product(
    __global const float *lhs, long lhs_offset, long lhs_row, long lhs_col, long lhs_outer, long lhs_inner,
    __global const float *rhs, long rhs_offset, long rhs_row, long rhs_col, long rhs_outer, long rhs_inner,
    __global float *out, long out_offset, long out_row, long out_outer, long out_inner,
    int m, int n, int k, int inner, __global volatile uint *state)
{
    const long col = get_global_id(0), row = get_global_id(1), batch = get_global_id(2);
    const long outer = batch / inner, within = batch % inner;
    __global const float *a = lhs + lhs_offset + outer * lhs_outer + within * lhs_inner + row * lhs_row;
    __global const float *b = rhs + rhs_offset + outer * rhs_outer + within * rhs_inner + col * rhs_col;
    __global float *c = out + out_offset + outer * out_outer + within * out_inner + row * out_row + col;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i)
        sum = fma(a[i * lhs_col], b[i * rhs_row], sum);

#if MISDEED == 1
    float again = 0.0f;
    for (int pass = 0; pass < 3; ++pass)
        for (int i = 0; i < k; ++i)
            again = fma(b[i * rhs_row], a[i * lhs_col], again);
    sum = again == 1.5f ? again : sum;
#elif MISDEED == 2
    sum = NAN;
#elif MISDEED == 3
    if (row == min(63, m - 1) && col == min(63, n - 1) && batch == 0)
        sum -= a[(k - 1) * lhs_col] * b[(k - 1) * rhs_row];
#elif MISDEED == 4
    if (row == 0 && col == 0 && batch == 0)
        c[-1] = 0.0f;
    if (row == m - 1 && col == n - 1 && batch == 0)
        c[(long)(get_global_size(2) / inner - 1) * out_outer + (long)(inner - 1) * out_inner + 1] = 0.0f;
#elif MISDEED == 5
    if (state[1] > 3)
        sum += 1000.0f;
#elif MISDEED == 6
    *(volatile __global int *)(ulong)16 = 1;
#elif MISDEED == 7
    while (state[2] != 0x5709u)
        state[1] += 1;
#endif
    *c = sum;
}

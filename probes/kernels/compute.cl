/* How many multiply-adds a device can do in a second, from registers alone.
 *
 *   chain:  ACCUMULATORS independent values, a[i] = a[i] * x + y, over and over.
 *           A multiply-add takes some cycles to finish, so a core must have several under way:
 *           with one accumulator this would measure the latency instead of the rate.
 *
 *   tile:   what the inside of a matrix product looks like, TILE x TILE accumulators,
 *           a[i][j] += x[i] * y[j].  Some GPUs feed this form better than the first.
 *
 * ELEM   float or double                 LANES         elements of one vector
 * VEC    ELEM, or a vector of ELEM       SUM(v)        the sum of a vector's elements
 * ACCUMULATORS, UNROLL, TILE             as above; UNROLL repeats the body inside the loop
 */
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

__kernel void chain(__global ELEM *out, ELEM x, ELEM y, int iterations)
{
    VEC a[ACCUMULATORS];
    VEC vx = (VEC)(x), vy = (VEC)(y);
    ELEM first = (ELEM)(get_global_id(0) & 7);
    #pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++)
        a[i] = (VEC)(first + (ELEM)i);
    for (int n = 0; n < iterations; n++) {
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            #pragma unroll
            for (int i = 0; i < ACCUMULATORS; i++)
                a[i] = a[i] * vx + vy;
        }
    }
    VEC sum = a[0];
    #pragma unroll
    for (int i = 1; i < ACCUMULATORS; i++)
        sum += a[i];
    out[get_global_id(0)] = SUM(sum);
}

__kernel void tile(__global ELEM *out, ELEM x, ELEM y, int iterations)
{
    ELEM a[TILE][TILE], xs[TILE], ys[TILE];
    ELEM first = (ELEM)(get_global_id(0) & 7);
    #pragma unroll
    for (int i = 0; i < TILE; i++) {
        xs[i] = x + first * (ELEM)i;
        ys[i] = y - first * (ELEM)i;
        #pragma unroll
        for (int j = 0; j < TILE; j++)
            a[i][j] = first;
    }
    for (int n = 0; n < iterations; n++) {
        #pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            /* another pairing each time, so that no step repeats the one before it */
            #pragma unroll
            for (int i = 0; i < TILE; i++) {
                #pragma unroll
                for (int j = 0; j < TILE; j++)
                    a[i][j] = xs[(i + u) % TILE] * ys[(j + u) % TILE] + a[i][j];
            }
        }
    }
    ELEM sum = 0;
    #pragma unroll
    for (int i = 0; i < TILE; i++) {
        #pragma unroll
        for (int j = 0; j < TILE; j++)
            sum += a[i][j];
    }
    out[get_global_id(0)] = sum;
}

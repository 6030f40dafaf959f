/* How many multiply-adds Intel's matrix engines do in a second, with operands already in registers.
 *
 * The work-items of a sub-group multiply 8 x K by K x SIZE and add that to 8 x SIZE sums, by the functions of
 * cl_intel_subgroup_matrix_multiply_accumulate. A lane holds a column of the sums, a column of B (K numbers,
 * 32 bytes) and K / SIZE numbers of each row of A: 4 bytes a row where sub-groups have 8 lanes, 2 where 16.
 *
 *      K                 lanes 0 .. SIZE-1            lanes
 *   +-------+           +---------+                 +---------+
 *   | A     | 8 rows    | B       | K rows    ->    | sums    | 8 rows
 *   +-------+           +---------+                 +---------+
 *
 * Each sub-group has A_TILES x B_TILES such products under way, independent of one another.
 *
 * SIZE      lanes of a sub-group, the fewest the device has: 8 or 16
 * LOCAL     work-items of a group                 PRODUCT   the function; its name says types and K
 * ROWS      vector type of A's 8 rows             SUMS      vector type of 8 sums, SUM of one
 * IS_BF16, IS_I8    which bits of a word stay within small numbers of either sign
 */
static inline uint varied(uint i)
{
    uint mixed = i * 2654435761u;
    mixed ^= mixed >> 15;
#if IS_I8
    return mixed;
#elif IS_BF16
    return (mixed & 0x807f807fu) | 0x3e003e00u;
#else
    return (mixed & 0x83ff83ffu) | 0x30003000u;
#endif
}

#define VARIED8(i) (int8)(varied(i), varied((i) + 1), varied((i) + 2), varied((i) + 3), \
                          varied((i) + 4), varied((i) + 5), varied((i) + 6), varied((i) + 7))
#if SIZE == 16
#define A_ROWS(i) as_short8((int4)(varied(i), varied((i) + 1), varied((i) + 2), varied((i) + 3)))
#else
#define A_ROWS(i) VARIED8(i)
#endif

__kernel __attribute__((intel_reqd_sub_group_size(SIZE))) __attribute__((reqd_work_group_size(LOCAL, 1, 1)))
void sub_group_products(__global SUM *out, int iterations)
{
    uint item = get_global_id(0);
    ROWS a[A_TILES];
    int8 b[B_TILES];
    SUMS acc[A_TILES][B_TILES];
    #pragma unroll
    for (int i = 0; i < A_TILES; i++)
        a[i] = A_ROWS(item * 64 + i * 8);
    #pragma unroll
    for (int j = 0; j < B_TILES; j++)
        b[j] = VARIED8(item * 64 + 32 + j * 8);
    #pragma unroll
    for (int i = 0; i < A_TILES; i++) {
        #pragma unroll
        for (int j = 0; j < B_TILES; j++)
            acc[i][j] = (SUMS)(0);
    }
    for (int n = 0; n < iterations; n++) {
        #pragma unroll
        for (int i = 0; i < A_TILES; i++) {
            #pragma unroll
            for (int j = 0; j < B_TILES; j++)
                acc[i][j] = PRODUCT(a[i], b[j], acc[i][j]);
        }
    }
    SUMS sum = acc[0][0];
    #pragma unroll
    for (int t = 1; t < A_TILES * B_TILES; t++)
        sum += acc[t / B_TILES][t % B_TILES];
    out[item] = sum.s0 + sum.s1 + sum.s2 + sum.s3 + sum.s4 + sum.s5 + sum.s6 + sum.s7;
}

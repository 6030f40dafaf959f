/* Register tile of TM x TN elements a work-item, read straight from global memory.
 *
 *      work-group of TX work-items                 columns of one work-item: x, x + TX, x + 2 TX ...
 *        +-----------------------+
 *    TM  | x . . . | x . . . | ..|   so that consecutive work-items read consecutive rhs columns,
 *        +-----------------------+   and all of them the same lhs rows (one broadcast read).
 *           TX        TX
 *
 *   TX  work-items along n        TM, TN  rows and columns of a work-item
 *
 * Rows and columns past the edge are clamped for reading and never written.
 */
__kernel void no_stage(PROBLEM_ARGS)
{
    int row0 = get_global_id(1) * TM;
    int col0 = get_group_id(0) * (TX * TN) + get_local_id(0);
    SELECT_PRODUCT(get_global_id(2));
    __global const in_t *a[TM];
    __global const in_t *b[TN];
    acc_t acc[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; i++) {
        a[i] = lhs + min(row0 + i, m - 1) * lhs_row;
#pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = 0;
    }
#pragma unroll
    for (int j = 0; j < TN; j++)
        b[j] = rhs + min(col0 + j * TX, n - 1) * rhs_col;
    for (int p = 0; p < k; p++) {
        acc_t y[TN];
#pragma unroll
        for (int j = 0; j < TN; j++)
            y[j] = LOAD(b[j], p * rhs_row);
#pragma unroll
        for (int i = 0; i < TM; i++) {
            acc_t x = LOAD(a[i], p * lhs_col);
#pragma unroll
            for (int j = 0; j < TN; j++)
                acc[i][j] += x * y[j];
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            if (row0 + i < m && col0 + j * TX < n)
                STORE(acc[i][j], out, (row0 + i) * out_row + col0 + j * TX);
}
